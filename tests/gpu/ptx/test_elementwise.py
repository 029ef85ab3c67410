"""elementwise.cu: relu, gelu, silu, swiglu, geglu, the sums of residual blocks, and sums of gradients."""
import numpy as np

from check import address, ceil, decode, encode, kind, near, numbers, same, wide, without_barriers, Device, PRECISIONS

GATE = 2 * np.sqrt(2 / np.pi)


def gelu(x):
    return x / (1 + np.exp(-GATE * (x + 0.044715 * x**3)))


def gelu_slope(x, dy):
    s = 1 / (1 + np.exp(-GATE * (x + 0.044715 * x**3)))
    return dy * (s + x * s * (1 - s) * GATE * (1 + 3 * 0.044715 * x**2))


def silu(x):
    return x / (1 + np.exp(-x))


def silu_slope(x, dy):
    s = 1 / (1 + np.exp(-x))
    return dy * (s + x * s * (1 - s))


def clamped(x, limit):
    gate, up = np.split(x, 2, 1)
    return np.minimum(gate, limit), np.clip(up, -limit, limit)


def gated(suite, T, name, f, rows, n, limit):
    random, d = np.random.default_rng(n), Device()
    x = numbers(random, (rows, 2 * n), T)
    y, V = d.buffer(np.zeros((rows, n), kind(T)), 'w'), wide(T, n)
    suite.run(f'{name}<{T}, {V}>', d, [ceil(rows * n, 256 * V)], [256],
              [address(y), address(d.buffer(encode(x, T))), np.int32(rows), np.int32(n), np.float32(limit)])
    gate, up = clamped(x, limit)
    near(d.get(y, kind(T), (rows, n)), f(gate) * up, np.abs(gate * up) + 1)


def gated_gradient(suite, T, name, f, slope, rows, n, limit):
    random, d = np.random.default_rng(n), Device()
    x, dy = numbers(random, (rows, 2 * n), T), numbers(random, (rows, n), T)
    dx, V = d.buffer(np.zeros((rows, 2 * n), kind(T)), 'w'), wide(T, n)
    suite.run(f'{name}_gradient<{T}, {V}>', d, [ceil(rows * n, 256 * V)], [256],
              [address(dx), address(d.buffer(encode(x, T))), address(d.buffer(encode(dy, T))), np.int32(rows),
               np.int32(n), np.float32(limit)])
    gate, up = clamped(x, limit)
    want = np.hstack((slope(gate, dy * up), dy * f(gate))) * (x == np.hstack((gate, up)))
    near(d.get(dx, kind(T), (rows, 2 * n)), want, np.abs(want) + 8)


def mapped(suite, T, f, formula, exact, n):
    random, d = np.random.default_rng(n), Device()
    x = numbers(random, n, T) * (1 if exact else 8)
    x = decode(encode(x, T))
    a, out = d.buffer(encode(x, T)), d.buffer(encode(x, T), 'w')
    suite.run(f'map<{T}, {f}>', d, [ceil(n, 256 * 16 // PRECISIONS[T])], [256], [address(out), address(a), np.int64(n)])
    got = d.get(out, kind(T), n)
    same(got, encode(formula(x), T)) if exact else near(got, formula(x), np.abs(x) + 1)


def mapped2(suite, T, f, formula, exact, n, in_place):
    random, d = np.random.default_rng(n), Device()
    x, y = numbers(random, n, T), numbers(random, n, T)
    a, b = d.buffer(encode(x, T), 'rw' if in_place else 'r'), d.buffer(encode(y, T))
    out = a if in_place else d.buffer(encode(x, T), 'w')
    suite.run(f'map2<{T}, {f}>', d, [ceil(n, 256 * 16 // PRECISIONS[T])], [256],
              [address(out), address(a), address(b), np.int64(n)])
    got = d.get(out, kind(T), n)
    want = formula(x, y)
    same(got, encode(want, T)) if exact else near(got, want, np.abs(y) * (np.abs(x) + 1) ** 3)


def sum_parts(suite, n, splits, first):
    random, d = np.random.default_rng(n), Device()
    parts, old = numbers(random, (splits, n), 'float', True), numbers(random, n, 'float', True)
    dst = d.buffer(encode(old, 'float'), 'w' if first else 'rw')
    suite.run('sum_parts', d, [ceil(n, 32)], [32, 8], [address(dst), address(d.buffer(encode(parts, 'float'))),
                                                       np.int32(n), np.int32(splits), np.bool_(first)])
    same(d.get(dst, np.float32, n), encode(parts.sum(0) + (0 if first else old), 'float'))


def widen_to(suite, n, first):
    random, d = np.random.default_rng(n), Device()
    src, old = numbers(random, n, '__nv_bfloat16'), numbers(random, n, 'float')
    dst = d.buffer(encode(old, 'float'), 'w' if first else 'rw')
    suite.run('widen_to', d, [ceil(n, 256)], [256],
              [address(dst), address(d.buffer(encode(src, '__nv_bfloat16'))), np.int64(n), np.bool_(first)])
    want = src.astype(np.float32) + (0 if first else old.astype(np.float32))
    same(d.get(dst, np.float32, n), encode(want, 'float'))


def narrow_to(suite, n):
    random, d = np.random.default_rng(n), Device()
    src, dst = numbers(random, n, 'float'), d.buffer(np.zeros(n, np.uint16), 'w')
    suite.run('narrow_to', d, [ceil(n, 256)], [256], [address(dst), address(d.buffer(encode(src, 'float'))), np.int64(n)])
    same(d.get(dst, np.uint16, n), encode(src, '__nv_bfloat16'))


def tests(suite):
    for n in (1, 7, 256, 2048, 4099):
        for first in (False, True):
            suite.test(f'widen_to, {n}, first {first}', widen_to, n, first)
        suite.test(f'narrow_to, {n}', narrow_to, n)
        for T in PRECISIONS:
            for f, formula, exact in (('relu', lambda x: np.maximum(x, 0), True), ('gelu', gelu, False),
                                      ('silu', silu, False)):
                suite.test(f'{f}, {T}, {n}', mapped, T, f, formula, exact, n)
            for f, formula, exact in (('relu_slope', lambda y, dy: np.where(y > 0, dy, 0), True),
                                      ('gelu_slope', gelu_slope, False),
                                      ('silu_slope', silu_slope, False), ('sum', lambda a, b: a + b, True)):
                suite.test(f'{f}, {T}, {n}', mapped2, T, f, formula, exact, n, False)
            suite.test(f'sum in place, {T}, {n}', mapped2, T, 'sum', lambda a, b: a + b, True, n, True)
        suite.test(f'same, {n}', mapped, 'float', 'same', lambda x: x, True, n)
    for rows, n in ((1, 1), (3, 5), (7, 64), (5, 257), (300, 8)):
        for T in PRECISIONS:
            for name, f, slope in (('swiglu', silu, silu_slope), ('geglu', gelu, gelu_slope)):
                for limit in (np.inf, 0.5):
                    what = f'{T}, {rows} x {n}, limit {limit}'
                    suite.test(f'{name}, {what}', gated, T, name, f, rows, n, limit)
                    suite.test(f'{name}_gradient, {what}', gated_gradient, T, name, f, slope, rows, n, limit)
    for n, splits in ((1, 1), (33, 7), (70, 19)):
        for first in (False, True):
            suite.test(f'sum_parts, {splits} x {n}, first {first}', sum_parts, n, splits, first)
    suite.test('sum_parts without its barrier', without_barriers, 'sum_parts', 1, sum_parts, 33, 7, True)
