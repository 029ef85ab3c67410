"""clip.cu: the sum of squares as an exact integer in units of 2^-298, against Python's own integers."""
from fractions import Fraction

import numpy as np

from check import address, without_barriers, Device

WORDS, RUNS, THREADS = 21, 96, 128


def gradient(random, n, what):
    """Returns a gradient of any exponents, or by `what`: of few exponents, of subnormals, or with infinities and NaNs."""
    bits = random.integers(0, 2**32, n, np.uint32)
    if what == 'few':
        return random.uniform(-2, 2, n).astype(np.float32)
    if what == 'tiny':
        bits &= np.uint32(0x80ffffff)
    x = bits.view(np.float32)
    return x if what == 'special' else np.where(np.isfinite(x), x, np.float32(0)).astype(np.float32)


def square_sum(x):
    """Returns the sum of squares in units of 2^-298."""
    return sum(int(Fraction(float(v)) ** 2 * 2**298) for v in x if np.isfinite(v))


def words_of(total, x):
    """Returns the total's words of 32 bits, then the number of infinities, and of NaNs."""
    return [total >> 32 * i & 0xffffffff for i in range(WORDS - 2)] + [int(np.isinf(x).sum()), int(np.isnan(x).sum())]


def add_squares(suite, n, blocks, runs, what):
    random, d = np.random.default_rng(n), Device()
    x = gradient(random, n, what)
    table = np.zeros(1 + 2 * RUNS, np.int64)
    table[0] = len(runs)
    table[1:1 + len(runs)] = [a for a, _ in runs]
    table[1 + RUNS:1 + RUNS + len(runs)] = [b for _, b in runs]
    parts = d.buffer(np.zeros(blocks * WORDS, np.uint64), 'w')
    suite.run('add_squares', d, [blocks], [THREADS], [address(d.buffer(x)), table.tobytes(), address(parts)])
    got = d.get(parts, np.uint64, blocks * WORDS).reshape(blocks, WORDS)
    inside = np.zeros(n, bool)
    for a, b in runs:
        inside[a:b] = True
    assert all(int(w) < 2**32 for w in got[:, :WORDS - 2].ravel()), 'a word above 2^32'
    have = sum(int(w) << 32 * i for row in got for i, w in enumerate(row[:WORDS - 2]))
    assert have == square_sum(x[inside]), f'{have} is not {square_sum(x[inside])}'
    assert [int(v) for v in got[:, WORDS - 2:].sum(0)] == words_of(0, x[inside])[WORDS - 2:]


def add_parts(suite, n, first):
    random, d = np.random.default_rng(n), Device()
    parts = random.integers(0, 2**32, (n, WORDS), np.uint64)
    before = random.integers(0, 2**32, WORDS, np.uint64)
    parts[:, WORDS - 3] = before[WORDS - 3] = 1  # room for carries in sums
    norm = d.buffer(before, 'w' if first else 'rw')
    suite.run('add_parts', d, [1], [32 * WORDS], [address(norm), address(d.buffer(parts)), np.int32(n), np.bool_(first)])
    rows = [list(map(int, row)) for row in parts] + ([] if first else [list(map(int, before))])
    total = sum(w << 32 * i for row in rows for i, w in enumerate(row[:WORDS - 2]))
    want = [total >> 32 * i & 0xffffffff for i in range(WORDS - 2)] + [sum(r[i] for r in rows) for i in (-2, -1)]
    assert [int(v) for v in d.get(norm, np.uint64, WORDS)] == want


def add_words(suite):
    random, d = np.random.default_rng(1), Device()
    a, b = random.integers(0, 2**62, (2, WORDS), np.uint64)
    norm = d.buffer(a, 'rw')
    suite.run('add_words', d, [1], [WORDS], [address(norm), address(d.buffer(b))])
    assert list(d.get(norm, np.uint64, WORDS)) == list(a + b)


def tests(suite):
    for what in ('any', 'few', 'tiny', 'special'):
        suite.test(f'squares, {what}', add_squares, 300, 2, [(0, 300)], what)
        suite.test(f'squares of runs, {what}', add_squares, 400, 1, [(0, 3), (64, 65), (128, 390)], what)
    for n in (0, 1, 33, 70):
        for first in (False, True):
            suite.test(f'{n} parts, {first}', add_parts, n, first)
    suite.test('words', add_words)
    suite.test('squares without a barrier', without_barriers, 'add_squares', 3, add_squares, 300, 1, [(0, 300)], 'any')
    suite.test('parts without a barrier', without_barriers, 'add_parts', 3, add_parts, 70, False)
