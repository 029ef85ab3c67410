"""embedding.cu, with integers, whose fp32 sums are exact."""
import numpy as np

from check import address, ceil, encode, kind, numbers, same, wide, without_barriers, Device, PRECISIONS


def look_up(suite, T, rows, context, vocab, n):
    random, d = np.random.default_rng(rows), Device()
    token, position = numbers(random, (vocab, n), T, True), numbers(random, (context, n), T, True)
    tokens, V = random.integers(0, vocab, rows).astype(np.int32), wide(T, n)
    y = d.buffer(np.zeros((rows, n), kind(T)), 'w')
    arguments = [y, d.buffer(encode(token, T)), d.buffer(encode(position, T)), d.buffer(tokens)]
    suite.run(f'look_up<{T}, {V}>', d, [ceil(rows * (n // V), 256)], [256],
              [address(a) for a in arguments] + [np.int32(rows), np.int32(context), np.int32(n)])
    same(d.get(y, kind(T), (rows, n)), encode(token[tokens] + position[np.arange(rows) % context], T))


def gradient(suite, name, T, rows, n, grid, tables, index, arguments, first):
    """Of a table: the sum over the rows that index names, on top of what was there unless first."""
    random, d = np.random.default_rng(rows), Device()
    dy, old = numbers(random, (rows, n), T, True), numbers(random, (tables, n), 'float', True)
    dw = d.buffer(encode(old, 'float'), 'ws' if first else 'rw')
    suite.run(f'{name}<{T}, {wide(T, n)}>', d, [grid], [256],
              [address(dw), address(d.buffer(encode(dy, T))), *arguments(d), np.bool_(first)])
    want = np.zeros((tables, n)) if first else old
    np.add.at(want, index, dy)
    same(d.get(dw, np.float32, (tables, n)), encode(want, 'float'))


def token_gradient(suite, T, rows, vocab, n, first):
    tokens = (np.random.default_rng(n).random(rows) ** 2 * vocab).astype(np.int32)  # some often, some never
    gradient(suite, 'token_gradient', T, rows, n, min(vocab, 132 * 8), vocab, tokens,
             lambda d: [address(d.buffer(tokens)), np.int32(rows), np.int32(vocab), np.int32(n)], first)


def position_gradient(suite, T, rows, context, n, first):
    gradient(suite, 'position_gradient', T, rows, n, ceil(context * (n // wide(T, n)), 256), context,
             np.arange(rows) % context, lambda d: [np.int32(rows), np.int32(context), np.int32(n)], first)


def tests(suite):
    for T in PRECISIONS:
        for n in (8, 72, 1, 13):
            suite.test(f'look_up, {T}, {n}', look_up, T, 33, 11, 17, n)
            for first in (False, True):
                suite.test(f'position_gradient, {T}, {n}, first {first}', position_gradient, T, 33, 11, n, first)
                suite.test(f'token_gradient, {T}, {n}, first {first}', token_gradient, T, 300, 17, n, first)
        for n in (8, 1):
            suite.test(f'token_gradient, {T}, two chunks, {n}', token_gradient, T, 8192 + 300, 3, n, True)
        n = 8 if T == 'float' else 1
        suite.test(f'token_gradient, {T}, more tokens than blocks, {n}', token_gradient, T, 40, 1100, n, True)
    suite.test('token_gradient without barriers', without_barriers, 'token_gradient<float, 4>', 2, token_gradient,
               'float', 300, 17, 8, True)
