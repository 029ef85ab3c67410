"""elementwise.cu: relu, gelu, the sums of residual blocks, and sums of gradients."""
import numpy as np

from check import address, ceil, decode, encode, kind, near, numbers, same, without_barriers, Device, PRECISIONS

GATE = 2 * np.sqrt(2 / np.pi)


def gelu(x):
    return x / (1 + np.exp(-GATE * (x + 0.044715 * x**3)))


def gelu_slope(x, dy):
    s = 1 / (1 + np.exp(-GATE * (x + 0.044715 * x**3)))
    return dy * (s + x * s * (1 - s) * GATE * (1 + 3 * 0.044715 * x**2))


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


def tests(suite):
    for n in (1, 7, 256, 2048, 4099):
        for T in PRECISIONS:
            for f, formula, exact in (('relu', lambda x: np.maximum(x, 0), True), ('gelu', gelu, False)):
                suite.test(f'{f}, {T}, {n}', mapped, T, f, formula, exact, n)
            for f, formula, exact in (('relu_slope', lambda y, dy: np.where(y > 0, dy, 0), True),
                                      ('gelu_slope', gelu_slope, False), ('sum', lambda a, b: a + b, True)):
                suite.test(f'{f}, {T}, {n}', mapped2, T, f, formula, exact, n, False)
            suite.test(f'sum in place, {T}, {n}', mapped2, T, 'sum', lambda a, b: a + b, True, n, True)
        suite.test(f'same, {n}', mapped, 'float', 'same', lambda x: x, True, n)
    for n, splits in ((1, 1), (33, 7), (70, 19)):
        for first in (False, True):
            suite.test(f'sum_parts, {splits} x {n}, first {first}', sum_parts, n, splits, first)
    suite.test('sum_parts without its barrier', without_barriers, 'sum_parts', 1, sum_parts, 33, 7, True)
