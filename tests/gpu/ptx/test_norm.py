"""norm.cu: layernorm, and rmsnorm, which is not centred, alone and fused with the sums of residual blocks."""
import itertools

import numpy as np

from check import address, ceil, decode, encode, kind, near, numbers, same, wide, without_barriers, Device, PRECISIONS


def grid_of(T, rows, n):
    """Computes row_grid of cuda.cuh."""
    across = ceil(n, 8 * wide(T, n))
    return across, max(1, min(132 * 8 // across, rows // 128))


def statistics(x, centred):
    mean = x.mean(1, keepdims=True) * centred
    return mean, 1 / np.sqrt(((x - mean) ** 2).mean(1, keepdims=True) + 1e-5)


def kept(mean, scale, centred):
    """Returns what a norm keeps of each row."""
    return np.hstack((mean, scale)) if centred else scale


def named(name, centred, T, *sizes):
    return f'{name}<{str(centred).lower()}, {T}, {", ".join(map(str, sizes))}>'


def held_of(T, n):
    """Returns the packs of a row that a lane holds: LAUNCH_WARPS of norm.cu."""
    return 8 if n % wide(T, 8) == 0 and n <= 32 * 8 * wide(T, 8) else 0


def normalize(suite, centred, T, rows, n, join, held):
    """Returns everything that the kernel wrote, as bytes."""
    random, d = np.random.default_rng(n), Device()
    x, other = numbers(random, (rows, n), T), numbers(random, (rows, n), T)
    gamma, beta = numbers(random, n, T), numbers(random, n, T)
    room = encode(x, T)
    y, total, stat = d.buffer(room, 'w'), d.buffer(room, 'w'), d.buffer(np.zeros((rows, 1 + centred), np.float32), 'w')
    arguments = [y, stat, total if join else 0, d.buffer(room), d.buffer(encode(other, T)) if join else 0,
                 d.buffer(encode(gamma, T)), d.buffer(encode(beta, T)) if centred else 0]
    suite.run(named('normalize', centred, T, wide(T, n), held), d, [ceil(rows, 8)], [256],
              [address(a) for a in arguments] + [np.int32(rows), np.int32(n), np.float32(1e-5)])
    if join:
        same(d.get(total, kind(T), (rows, n)), encode(x + other, T), 'the sum')
        x = decode(encode(x + other, T))
    mean, scale = statistics(x, centred)
    aux = d.get(stat, np.float32, (rows, 1 + centred))
    near(aux, kept(mean, scale, centred), kept(mean * 0 + 4, scale, centred), 'aux')
    near(d.get(y, kind(T), (rows, n)), gamma * (x - mean) * scale + beta * centred, np.abs(gamma) * scale * 4 + 2, 'y')
    return d.get(y, kind(T), (rows, n)).tobytes() + aux.tobytes()


def input_gradient(suite, centred, T, rows, n, fork, held):
    random, d = np.random.default_rng(n), Device()
    x, dy, around = (numbers(random, (rows, n), T) for _ in range(3))
    gamma = numbers(random, n, T)
    mean, scale = statistics(x, centred)
    stat = kept(mean, scale, centred).astype(np.float32)
    dx = d.buffer(encode(x, T), 'w')
    arguments = [dx, d.buffer(encode(dy, T)), d.buffer(stat), d.buffer(encode(x, T)), d.buffer(encode(gamma, T)),
                 d.buffer(encode(around, T)) if fork else 0]
    suite.run(named('input_gradient', centred, T, wide(T, n), held), d, [ceil(rows, 8)], [256],
              [address(a) for a in arguments] + [np.int32(rows), np.int32(n)])
    g, hat = gamma * dy, (x - mean) * scale
    want = (g - g.mean(1, keepdims=True) * centred - hat * (g * hat).mean(1, keepdims=True)) * scale
    if fork:
        want = want + around
    near(d.get(dx, kind(T), (rows, n)), want, 8 * scale * (1 + hat**2) + 2)
    return d.get(dx, kind(T), (rows, n)).tobytes()


def both_ways(suite, function, centred, T, rows, n, with_sum):
    """Checks that a row that is held and one that is read again give the same bits."""
    assert held_of(T, n) == 8
    again = function(suite, centred, T, rows, n, with_sum, 0)
    assert function(suite, centred, T, rows, n, with_sum, 8) == again, 'other bits'


def weight_gradient(suite, centred, T, rows, n):
    random, d = np.random.default_rng(n), Device()
    x, dy = numbers(random, (rows, n), T), numbers(random, (rows, n), T)
    mean, scale = statistics(x, centred)
    stat = kept(mean, scale, centred).astype(np.float32)
    grid = grid_of(T, rows, n)
    parts = d.buffer(np.zeros((grid[1], 1 + centred, n), np.float32), 'w')
    arguments = [parts, d.buffer(encode(dy, T)), d.buffer(stat), d.buffer(encode(x, T))]
    suite.run(named('weight_gradient', centred, T, wide(T, n)), d, grid, [8, 32],
              [address(a) for a in arguments] + [np.int32(rows), np.int32(n)])
    got, hat = d.get(parts, np.float32, (grid[1], 1 + centred, n)).astype(np.float64).sum(0), (x - mean) * scale
    terms = np.stack((dy * hat, dy))[:1 + centred]
    near(got, terms.sum(1), np.abs(terms).sum(1))


def of_norm(suite, name, centred, T):
    most = 32 * 8 * wide(T, 8)
    sizes = [(1, 8), (9, 272), (2, 1160), (13, 64), (3, 1), (11, 37), (5, 131)]
    longest = [(3, most - wide(T, 8)), (2, most), (2, most + wide(T, 8)), (2, most - 1), (2, most + 1), (1, 3 * most)]
    for rows, n in sizes + longest:
        for function, with_sum in itertools.product((normalize, input_gradient), (False, True)):
            what = f'{name}: {function.__name__}, {T}, {rows} x {n}, {"with" if with_sum else "without"} a sum'
            suite.test(what, function, centred, T, rows, n, with_sum, held_of(T, n))
            if held_of(T, n):
                suite.test(f'{what}, both ways', both_ways, function, centred, T, rows, n, with_sum)
    for rows, n in ((5, 72), (301, 8), (259, 13), (33, 131)):
        suite.test(f'{name}: weight_gradient, {T}, {rows} x {n}', weight_gradient, centred, T, rows, n)
    kernel, barriers = named('weight_gradient', centred, T, 1), 3 if centred else 1
    suite.test(f'{kernel} without barriers', without_barriers, kernel, barriers, weight_gradient, centred, T, 259, 13)


def tests(suite):
    for T in PRECISIONS:
        V, most = wide(T, 8), 32 * 8 * wide(T, 8)
        for n, held in ((V, 8), (most - V, 8), (most, 8), (most + V, 0), (most - 1, 0), (1, 0)):
            assert held_of(T, n) == held
        of_norm(suite, 'layernorm', True, T)
        of_norm(suite, 'rmsnorm', False, T)
