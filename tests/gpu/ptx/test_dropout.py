"""dropout.cu: which values it drops, by a Philox-4x32-10 in Python's integers, which is compared with the words that
Random123's kat_vectors publishes."""
import numpy as np

from check import address, ceil, encode, kind, numbers, same, wide, Device, PRECISIONS


def philox(c, k):
    """Salmon et al. 2011, section 3.3: ten rounds of two products."""
    for i in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [b >> 32 ^ c[1] ^ k[0], b % 2**32, a >> 32 ^ c[3] ^ k[1], a % 2**32]
        k = [(k[0] + 0x9E3779B9) % 2**32, (k[1] + 0xBB67AE85) % 2**32]
    return c


def known_answers():
    ones = 0xffffffff
    for counter, key, want in (
            ([0] * 4, [0] * 2, [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]),
            ([ones] * 4, [ones] * 2, [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd]),
            ([0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344], [0xa4093822, 0x299f31d0],
             [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1])):
        assert philox(counter, key) == want


def drop(suite, T, rows, n, p, where=None, step=6, period=0, moved=0):
    """where: length, stride, chunk, first, second, which map the layer's row r to the microbatch's row."""
    random, d = np.random.default_rng(rows), Device()
    x = numbers(random, (rows, n), T)
    length, stride, chunk, first, second = where or (rows, 0, rows, 0, 0)
    seed, batch, layer = 0x123456789abcdef, 5, 11
    below, scale = int(p * 2**32), np.float32(1 / (1 - p))
    struct = np.array([seed % 2**32, seed >> 32, batch, 99, layer, below], np.uint32).tobytes()
    struct += scale.tobytes() + np.array([length, stride, chunk, first, second], np.int32).tobytes()
    y, V = d.buffer(np.zeros((rows, n), kind(T)), 'w'), wide(T, n)
    counted = d.buffer(np.array([step + 1, moved], np.int64))
    suite.run(f'drop<{T}, {V}>', d, [ceil(rows * n, 256 * V)], [256],
              [address(y), address(d.buffer(encode(x, T))), np.int32(rows), np.int32(n), struct, address(counted),
               np.int32(period)])
    kept = np.zeros((rows, n), bool)
    for r in range(rows):
        at = r % length
        row = r // length * stride + (first + at if at < chunk else second + at - chunk)
        for j in range(n):
            block, word = divmod(row * n + j, 4)
            words = philox([block % 2**32, batch + moved * period, step, layer + (block >> 32 << 16)],
                           [seed % 2**32, seed >> 32])
            kept[r, j] = words[word] >= below
    want = np.where(kept, x.astype(np.float32) * scale, np.float32(0))
    same(d.get(y, kind(T), (rows, n)), encode(want, T))
    assert p == 0 or rows * n < 60 or 0 < kept.sum() < kept.size


def tests(suite):
    suite.test('known answers', lambda _: known_answers())
    for T in PRECISIONS:
        for rows, n in ((1, 1), (7, 24), (5, 13), (9, 64), (3, 6)):
            for p in (0, 0.1, 0.75):
                suite.test(f'drop, {T}, {rows} x {n}, {p}', drop, T, rows, n, p)
        suite.test(f'drop, {T}, of a slice', drop, T, 6, 16, 0.5, (3, 12, 3, 4, 0))
        suite.test(f'drop, {T}, of two chunks', drop, T, 8, 16, 0.5, (4, 12, 2, 2, 8))
        suite.test(f'drop, {T}, in a period', drop, T, 8, 16, 0.5, None, 2**31, 4, 3)
