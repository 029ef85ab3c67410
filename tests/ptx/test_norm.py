"""norm.cu: layernorm, alone and with the sums of residual blocks."""
import numpy as np

from check import address, ceil, decode, encode, kind, near, numbers, same, wide, without_barriers, Device, PRECISIONS


def grid_of(T, rows, n):
    """row_grid of cuda.cuh."""
    across = ceil(n, 8 * wide(T, n))
    return across, max(1, min(132 * 8 // across, rows // 128))


def statistics(x):
    mean = x.mean(1, keepdims=True)
    return mean, 1 / np.sqrt(((x - mean) ** 2).mean(1, keepdims=True) + 1e-5)


def normalize(suite, T, rows, n, join):
    random, d = np.random.default_rng(n), Device()
    x, other = numbers(random, (rows, n), T), numbers(random, (rows, n), T)
    gamma, beta = numbers(random, n, T), numbers(random, n, T)
    room = encode(x, T)
    y, total, stat = d.buffer(room, 'w'), d.buffer(room, 'w'), d.buffer(np.zeros((rows, 2), np.float32), 'w')
    arguments = [y, stat, total if join else 0, d.buffer(room), d.buffer(encode(other, T)) if join else 0,
                 d.buffer(encode(gamma, T)), d.buffer(encode(beta, T))]
    suite.run(f'normalize<{T}, {wide(T, n)}>', d, [ceil(rows, 8)], [256],
              [address(a) for a in arguments] + [np.int32(rows), np.int32(n)])
    if join:
        same(d.get(total, kind(T), (rows, n)), encode(x + other, T), 'the sum')
        x = decode(encode(x + other, T))
    mean, scale = statistics(x)
    near(d.get(stat, np.float32, (rows, 2)), np.hstack((mean, scale)), np.hstack((mean * 0 + 4, scale)), 'aux')
    near(d.get(y, kind(T), (rows, n)), gamma * (x - mean) * scale + beta, np.abs(gamma) * scale * 4 + 2, 'y')


def input_gradient(suite, T, rows, n, fork):
    random, d = np.random.default_rng(n), Device()
    x, dy, around = (numbers(random, (rows, n), T) for _ in range(3))
    gamma = numbers(random, n, T)
    mean, scale = statistics(x)
    stat = np.hstack((mean, scale)).astype(np.float32)
    dx = d.buffer(encode(x, T), 'w')
    arguments = [dx, d.buffer(encode(dy, T)), d.buffer(stat), d.buffer(encode(x, T)), d.buffer(encode(gamma, T)),
                 d.buffer(encode(around, T)) if fork else 0]
    suite.run(f'input_gradient<{T}, {wide(T, n)}>', d, [ceil(rows, 8)], [256],
              [address(a) for a in arguments] + [np.int32(rows), np.int32(n)])
    g, hat = gamma * dy, (x - mean) * scale
    want = (g - g.mean(1, keepdims=True) - hat * (g * hat).mean(1, keepdims=True)) * scale
    if fork:
        want = want + around
    near(d.get(dx, kind(T), (rows, n)), want, 8 * scale * (1 + hat**2) + 2)


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
        for rows, n in ((1, 8), (9, 272), (2, 1160), (13, 64), (3, 1), (11, 37), (5, 131)):
            for with_sum in (False, True):
                suite.test(f'normalize, {T}, {rows} x {n}, join {with_sum}', normalize, T, rows, n, with_sum)
                suite.test(f'input_gradient, {T}, {rows} x {n}, fork {with_sum}', input_gradient, T, rows, n, with_sum)
        for rows, n in ((5, 72), (301, 8), (259, 13), (33, 131)):
            suite.test(f'weight_gradient, {T}, {rows} x {n}', weight_gradient, T, rows, n)
        name = f'weight_gradient<{T}, 1>'
        suite.test(f'{name} without barriers', without_barriers, name, 3, weight_gradient, T, 259, 13)
