"""headnorm.cu: an rmsnorm of each head of queries and keys; values are copied."""
import numpy as np

from check import address, ceil, encode, kind, near, numbers, same, wide, without_barriers, Device, PRECISIONS
from test_norm import grid_of


def tensors(T, rows, q, k, n):
    """Returns x and dy as rows x heads x n, with 1 for values' gamma; which heads are values'; and each head's scale."""
    random = np.random.default_rng(n)
    x, dy = (numbers(random, (rows, q + 2 * k, n), T) for _ in range(2))
    gammas = numbers(random, (2, n), T)
    gamma = np.stack([gammas[0]] * q + [gammas[1]] * k + [np.ones(n)] * k)
    return x, dy, gammas, gamma, 1 / np.sqrt((x**2).mean(2, keepdims=True) + 1e-5)


def sizes(rows, q, k, n):
    return [np.int32(i) for i in (rows, q, k, n)]


def normalize(suite, T, rows, q, k, n):
    d = Device()
    x, _, gammas, gamma, scale = tensors(T, rows, q, k, n)
    y, stat = d.buffer(encode(x, T), 'w'), d.buffer(np.zeros((rows, q + k), np.float32), 'w')
    suite.run(f'normalize_heads<{T}, {wide(T, n)}>', d, [ceil(rows * (q + 2 * k), 8)], [256],
              [address(a) for a in (y, stat, d.buffer(encode(x, T)), d.buffer(encode(gammas, T)))] + sizes(rows, q, k, n) +
              [np.float32(1e-5)])
    near(d.get(stat, np.float32, (rows, q + k)), scale[:, :q + k, 0], scale[:, :q + k, 0], 'aux')
    got = d.get(y, kind(T), x.shape)
    near(got[:, :q + k], (gamma * x * scale)[:, :q + k], (np.abs(gamma) * scale * 4 + 2)[:, :q + k], 'y')
    same(got[:, q + k:], encode(x, T).reshape(x.shape)[:, q + k:], 'values')


def input_gradient(suite, T, rows, q, k, n):
    d = Device()
    x, dy, gammas, gamma, scale = tensors(T, rows, q, k, n)
    dx, stat = d.buffer(encode(x, T), 'w'), d.buffer(scale[:, :q + k].astype(np.float32))
    suite.run(f'heads_input_gradient<{T}, {wide(T, n)}>', d, [ceil(rows * (q + 2 * k), 8)], [256],
              [address(a) for a in (dx, d.buffer(encode(dy, T)), stat, d.buffer(encode(x, T)), d.buffer(encode(gammas, T)))] +
              sizes(rows, q, k, n))
    g, hat = gamma * dy, x * scale
    want, got = (g - hat * (g * hat).mean(2, keepdims=True)) * scale, d.get(dx, kind(T), x.shape)
    near(got[:, :q + k], want[:, :q + k], (8 * scale * (1 + hat**2) + 2)[:, :q + k], 'dx')
    same(got[:, q + k:], encode(dy, T).reshape(x.shape)[:, q + k:], 'of values')


def weight_gradient(suite, T, rows, q, k, n):
    d = Device()
    x, dy, _, _, scale = tensors(T, rows, q, k, n)
    grid = grid_of(T, rows, n)
    parts, stat = d.buffer(np.zeros((grid[1], 2, n), np.float32), 'w'), d.buffer(scale[:, :q + k].astype(np.float32))
    suite.run(f'heads_weight_gradient<{T}, {wide(T, n)}>', d, [*grid, 2], [8, 32],
              [address(a) for a in (parts, d.buffer(encode(dy, T)), stat, d.buffer(encode(x, T)))] + sizes(rows, q, k, n))
    terms = dy * x * scale
    got = d.get(parts, np.float32, (grid[1], 2, n)).astype(np.float64).sum(0)
    for which, of in enumerate((terms[:, :q], terms[:, q:q + k])):
        near(got[which], of.sum((0, 1)), np.abs(of).sum((0, 1)), 'keys' if which else 'queries')


def tests(suite):
    for T in PRECISIONS:
        for shape in ((1, 1, 1, 8), (5, 4, 2, 16), (3, 2, 2, 128), (2, 1, 1, 264), (3, 3, 1, 13), (2, 2, 1, 301)):
            for function in (normalize, input_gradient):
                suite.test(f'{function.__name__}, {T}, {shape}', function, T, *shape)
        for shape in ((5, 2, 1, 72), (301, 2, 2, 8), (259, 3, 1, 13), (33, 1, 1, 131)):
            suite.test(f'weight_gradient, {T}, {shape}', weight_gradient, T, *shape)
        name = f'heads_weight_gradient<{T}, 1>'
        suite.test(f'{name} without barriers', without_barriers, name, 1, weight_gradient, T, 259, 2, 1, 13)
