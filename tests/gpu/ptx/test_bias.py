"""bias.cu: x + bias, and the sum of a gradient's rows, on integers, whose fp32 sums are exact."""
import numpy as np

from check import address, ceil, encode, kind, numbers, same, wide, without_barriers, Device, PRECISIONS
from test_norm import grid_of


def add_bias(suite, T, rows, n):
    random, d = np.random.default_rng(n), Device()
    x, bias, V = numbers(random, (rows, n), T), numbers(random, n, T), wide(T, n)
    y = d.buffer(np.zeros((rows, n), kind(T)), 'w')
    suite.run(f'add_bias<{T}, {V}>', d, [ceil(rows * (n // V), 256)], [256],
              [address(y), address(d.buffer(encode(x, T))), address(d.buffer(encode(bias, T))), np.int32(rows),
               np.int32(n)])
    same(d.get(y, kind(T), (rows, n)), encode((x.astype(np.float32) + bias.astype(np.float32)), T))


def bias_gradient(suite, T, rows, n):
    random, d = np.random.default_rng(n), Device()
    dy, grid = numbers(random, (rows, n), T, True), grid_of(T, rows, n)
    parts = d.buffer(np.zeros((grid[1], n), np.float32), 'w')
    suite.run(f'bias_gradient<{T}, {wide(T, n)}>', d, grid, [8, 32],
              [address(parts), address(d.buffer(encode(dy, T))), np.int32(rows), np.int32(n)])
    same(d.get(parts, np.float32, (grid[1], n)).sum(0), encode(dy.sum(0), 'float'))


def tests(suite):
    for T in PRECISIONS:
        for rows, n in ((1, 8), (5, 72), (301, 136), (3, 1), (259, 13), (33, 131)):
            suite.test(f'add_bias, {T}, {rows} x {n}', add_bias, T, rows, n)
            suite.test(f'bias_gradient, {T}, {rows} x {n}', bias_gradient, T, rows, n)
        name = f'bias_gradient<{T}, 1>'
        suite.test(f'{name} without barriers', without_barriers, name, 1, bias_gradient, T, 259, 13)
