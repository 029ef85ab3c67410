"""embedding.cu, on integers, whose fp32 sums are exact."""
import numpy as np

from check import address, ceil, encode, kind, numbers, same, wide, without_barriers, Device, PRECISIONS


def tokens_from(first, n):
    """Returns struct range: a layer's tokens, of a vocabulary that a team's members divide, or a slice's positions."""
    return np.array([first, n], np.int32).tobytes()


def places(begin, length):
    """Returns struct positions for a slice with `length` rows of each sequence from `begin` on, or with chunks, whose
    numbers `length` lists."""
    return np.array((length, length, begin, 0, 0) if np.ndim(length) == 0 else length, np.int32)


def position_of(rows, begin, length):
    """Returns the position of each row."""
    size, chunk, first, second, skipped = places(begin, length)
    at = (np.arange(rows) + skipped) % size
    return np.where(at < chunk, first + at, second + at - chunk)


def look_up(suite, T, rows, context, vocab, n, positions, first=0, begin=0, length=None, scale=1):
    """Tests a layer that has vocab tokens, with `first` more before and after it, and a slice's rows of each sequence."""
    length = length or context
    random, d = np.random.default_rng(rows), Device()
    token, position = numbers(random, (vocab, n), T, True), numbers(random, (context, n), T, True) * positions
    tokens, V = random.integers(0, vocab + 2 * first, rows).astype(np.int32), wide(T, n)
    y = d.buffer(np.zeros((rows, n), kind(T)), 'w')
    arguments = [y, d.buffer(encode(token, T)), d.buffer(encode(position, T)) if positions else 0, d.buffer(tokens)]
    suite.run(f'look_up<{T}, {V}>', d, [ceil(rows * (n // V), 256)], [256],
              [address(a) for a in arguments] + [tokens_from(first, vocab), np.int32(rows), places(begin, length).tobytes(),
               np.float32(scale), np.int32(n)])
    has = (tokens >= first) & (tokens < first + vocab)
    want = scale * token[np.where(has, tokens - first, 0)] * has[:, None] + position[position_of(rows, begin, length)]
    same(d.get(y, kind(T), (rows, n)), encode(want, T))


def gradient(suite, name, T, rows, n, grid, tables, index, arguments, first, scale=1):
    """Tests a table's gradient: the sum over the rows that index names, added to the old one unless first."""
    random, d = np.random.default_rng(rows), Device()
    dy, old = numbers(random, (rows, n), T, True), numbers(random, (tables, n), 'float', True)
    dw = d.buffer(encode(old, 'float'), 'ws' if first else 'rw')
    suite.run(f'{name}<{T}, {wide(T, n)}>', d, [grid], [256],
              [address(dw), address(d.buffer(encode(dy, T))), *arguments(d), np.bool_(first)])
    want = np.zeros((tables, n)) if first else old
    has = (index >= 0) & (index < tables)
    np.add.at(want, index[has], scale * dy[has])
    same(d.get(dw, np.float32, (tables, n)), encode(want, 'float'))


def token_gradient(suite, T, rows, vocab, n, first, before=0, scale=1):
    """before: tokens that belong to another member; as many follow."""
    tokens = (np.random.default_rng(n).random(rows) ** 2 * (vocab + 2 * before)).astype(np.int32)  # some often, some never
    gradient(suite, 'token_gradient', T, rows, n, min(vocab, 132 * 8), vocab, tokens - before,
             lambda d: [address(d.buffer(tokens)), tokens_from(before, vocab), np.float32(scale), np.int32(rows), np.int32(n)],
             first, scale)


def position_gradient(suite, T, rows, context, n, first, begin=0, length=None):
    length = length or context
    gradient(suite, 'position_gradient', T, rows, n, ceil(context * (n // wide(T, n)), 256), context,
             position_of(rows, begin, length),
             lambda d: [np.int32(rows), np.int32(context), places(begin, length).tobytes(), np.int32(n)], first)


CHUNKS, RUN = (4, 2, 2, 8, 0), (12, 12, 0, 0, 7)  # a member's rows 2, 3, 8, 9 of each sequence; a run from row 7 on


def tests(suite):
    for T in PRECISIONS:
        for n in (8, 72, 1, 13):
            suite.test(f'look_up, {T}, {n}', look_up, T, 33, 11, 17, n, True)
            suite.test(f'look_up, scaled, {T}, {n}', look_up, T, 33, 11, 17, n, True, 0, 0, None, 4)
            suite.test(f'look_up without positions, {T}, {n}', look_up, T, 33, 11, 17, n, False)
            suite.test(f'look_up of a part, {T}, {n}', look_up, T, 33, 11, 7, n, False, 7)
            suite.test(f'look_up of a slice, {T}, {n}', look_up, T, 12, 11, 17, n, True, 0, 5, 4)
            for what, rows in (('two chunks', CHUNKS), ('a run', RUN)):
                suite.test(f'look_up of {what}, {T}, {n}', look_up, T, 12, 12, 17, n, True, 0, 0, rows)
            for first in (False, True):
                suite.test(f'token_gradient of a part, {T}, {n}, first {first}', token_gradient, T, 300, 7, n, first, 7)
                suite.test(f'position_gradient, {T}, {n}, first {first}', position_gradient, T, 33, 11, n, first)
                suite.test(f'position_gradient of a slice, {T}, {n}, first {first}', position_gradient, T, 12, 11, n, first, 5, 4)
                for what, rows in (('two chunks', CHUNKS), ('a run', RUN)):
                    suite.test(f'position_gradient of {what}, {T}, {n}, first {first}', position_gradient, T, 12, 12, n,
                               first, 0, rows)
                suite.test(f'token_gradient, {T}, {n}, first {first}', token_gradient, T, 300, 17, n, first)
                suite.test(f'token_gradient, scaled, {T}, {n}, first {first}', token_gradient, T, 300, 17, n, first, 0, 4)
        for n in (8, 1):
            suite.test(f'token_gradient, {T}, two chunks, {n}', token_gradient, T, 8192 + 300, 3, n, True)
        n = 8 if T == 'float' else 1
        suite.test(f'token_gradient, {T}, more tokens than blocks, {n}', token_gradient, T, 40, 1100, n, True)
    suite.test('token_gradient without barriers', without_barriers, 'token_gradient<float, 4>', 2, token_gradient,
               'float', 300, 17, 8, True)
