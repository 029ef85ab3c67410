"""norm.cu: layernorm, alone and with the sums of residual blocks."""
import itertools

import numpy as np

from check import address, ceil, decode, encode, kind, near, numbers, same, wide, without_barriers, Device, PRECISIONS


def grid_of(T, rows, n):
    """row_grid of cuda.cuh."""
    across = ceil(n, 8 * wide(T, n))
    return across, max(1, min(132 * 8 // across, rows // 128))


def statistics(x):
    mean = x.mean(1, keepdims=True)
    return mean, 1 / np.sqrt(((x - mean) ** 2).mean(1, keepdims=True) + 1e-5)


def held_of(T, n):
    """Packs of a row that a lane holds: LAUNCH_WARPS of norm.cu."""
    return 8 if n % wide(T, 8) == 0 and n <= 32 * 8 * wide(T, 8) else 0


def normalize(suite, T, rows, n, join, held):
    """Returns all that it wrote, as bytes."""
    random, d = np.random.default_rng(n), Device()
    x, other = numbers(random, (rows, n), T), numbers(random, (rows, n), T)
    gamma, beta = numbers(random, n, T), numbers(random, n, T)
    room = encode(x, T)
    y, total, stat = d.buffer(room, 'w'), d.buffer(room, 'w'), d.buffer(np.zeros((rows, 2), np.float32), 'w')
    arguments = [y, stat, total if join else 0, d.buffer(room), d.buffer(encode(other, T)) if join else 0,
                 d.buffer(encode(gamma, T)), d.buffer(encode(beta, T))]
    suite.run(f'normalize<{T}, {wide(T, n)}, {held}>', d, [ceil(rows, 8)], [256],
              [address(a) for a in arguments] + [np.int32(rows), np.int32(n)])
    if join:
        same(d.get(total, kind(T), (rows, n)), encode(x + other, T), 'the sum')
        x = decode(encode(x + other, T))
    mean, scale = statistics(x)
    near(d.get(stat, np.float32, (rows, 2)), np.hstack((mean, scale)), np.hstack((mean * 0 + 4, scale)), 'aux')
    near(d.get(y, kind(T), (rows, n)), gamma * (x - mean) * scale + beta, np.abs(gamma) * scale * 4 + 2, 'y')
    return d.get(y, kind(T), (rows, n)).tobytes() + d.get(stat, np.float32, (rows, 2)).tobytes()


def input_gradient(suite, T, rows, n, fork, held):
    random, d = np.random.default_rng(n), Device()
    x, dy, around = (numbers(random, (rows, n), T) for _ in range(3))
    gamma = numbers(random, n, T)
    mean, scale = statistics(x)
    stat = np.hstack((mean, scale)).astype(np.float32)
    dx = d.buffer(encode(x, T), 'w')
    arguments = [dx, d.buffer(encode(dy, T)), d.buffer(stat), d.buffer(encode(x, T)), d.buffer(encode(gamma, T)),
                 d.buffer(encode(around, T)) if fork else 0]
    suite.run(f'input_gradient<{T}, {wide(T, n)}, {held}>', d, [ceil(rows, 8)], [256],
              [address(a) for a in arguments] + [np.int32(rows), np.int32(n)])
    g, hat = gamma * dy, (x - mean) * scale
    want = (g - g.mean(1, keepdims=True) - hat * (g * hat).mean(1, keepdims=True)) * scale
    if fork:
        want = want + around
    near(d.get(dx, kind(T), (rows, n)), want, 8 * scale * (1 + hat**2) + 2)
    return d.get(dx, kind(T), (rows, n)).tobytes()


def both_ways(suite, function, T, rows, n, with_sum):
    """A row that is held and one that is read again give the same bits."""
    assert held_of(T, n) == 8
    assert function(suite, T, rows, n, with_sum, 8) == function(suite, T, rows, n, with_sum, 0), 'other bits'


def weight_gradient(suite, T, rows, n):
    random, d = np.random.default_rng(n), Device()
    x, dy = numbers(random, (rows, n), T), numbers(random, (rows, n), T)
    mean, scale = statistics(x)
    stat = np.hstack((mean, scale)).astype(np.float32)
    grid = grid_of(T, rows, n)
    parts = d.buffer(np.zeros((grid[1], 2, n), np.float32), 'w')
    arguments = [parts, d.buffer(encode(dy, T)), d.buffer(stat), d.buffer(encode(x, T))]
    suite.run(f'weight_gradient<{T}, {wide(T, n)}>', d, grid, [8, 32],
              [address(a) for a in arguments] + [np.int32(rows), np.int32(n)])
    got, hat = d.get(parts, np.float32, (grid[1], 2, n)).astype(np.float64).sum(0), (x - mean) * scale
    near(got, np.stack(((dy * hat).sum(0), dy.sum(0))), np.stack((np.abs(dy * hat).sum(0), np.abs(dy).sum(0))))


def tests(suite):
    for T in PRECISIONS:
        V, most = wide(T, 8), 32 * 8 * wide(T, 8)
        for n, held in ((V, 8), (most - V, 8), (most, 8), (most + V, 0), (most - 1, 0), (1, 0)):
            assert held_of(T, n) == held
        sizes = [(1, 8), (9, 272), (2, 1160), (13, 64), (3, 1), (11, 37), (5, 131)]
        for rows, n in sizes + [(3, most - V), (2, most), (2, most + V), (2, most - 1), (2, most + 1), (1, 3 * most)]:
            for function, with_sum in itertools.product((normalize, input_gradient), (False, True)):
                what = f'{function.__name__}, {T}, {rows} x {n}, {"with" if with_sum else "without"} a sum'
                suite.test(what, function, T, rows, n, with_sum, held_of(T, n))
                if held_of(T, n):
                    suite.test(f'{what}, both ways', both_ways, function, T, rows, n, with_sum)
        for rows, n in ((5, 72), (301, 8), (259, 13), (33, 131)):
            suite.test(f'weight_gradient, {T}, {rows} x {n}', weight_gradient, T, rows, n)
        name = f'weight_gradient<{T}, 1>'
        suite.test(f'{name} without barriers', without_barriers, name, 3, weight_gradient, T, 259, 13)
