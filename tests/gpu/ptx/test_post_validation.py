"""post_validation.cu: updates that may be rolled back. The expected verdicts are a table of all cases, written from the
description in layers/post_validation.h. What is kept, and what comes back, must be the original bits."""
import numpy as np

from check import address, ceil, same, Device
from test_optim import clipped, model

f = np.float32
HEADER = 16
GOES_ON, TAKES_BACK, STANDS = range(3)
LARGE, SMALL, INFINITE, NO_NUMBER = 9 * 2**296, 2**290, -1, -2  # norms; clip is 0.25


def header(opened, verdict=7):
    return np.array([opened, verdict] + [5] * (HEADER - 2), np.int32)


def judge(suite, opened, norm, settles, verdict):
    d = Device()
    words, _ = clipped(norm)
    kept = d.buffer(header(opened), 'rw')
    suite.run('judge', d, [1], [1], [address(kept), model('constant', 0, 0), address(d.buffer(words)), np.bool_(settles)])
    assert list(d.get(kept, np.int32, HEADER)) == list(header(verdict == GOES_ON, verdict))


def copy_kept(suite, n, moments, verdict):
    random, d = np.random.default_rng(n), Device()
    w, g, old = (random.standard_normal(k).astype(f) for k in (n, n, moments * n))
    saved = random.standard_normal((moments + 2) * n).astype(f)
    weight, dw = d.buffer(w, 'rw'), d.buffer(g)
    state = d.buffer(np.concatenate((old, header(1, verdict).view(f), saved)), 'rw')
    kept = state + 4 * (moments * n + HEADER)
    struct = np.array([weight, state, kept, dw, n, moments * n], np.int64).tobytes()
    suite.run('copy_kept', d, [ceil(n, 256)], [256], [address(state + 4 * moments * n), struct])
    now = d.get(state, np.uint32, len(old) + HEADER + len(saved)).view(f)
    if verdict == GOES_ON:
        saved = np.concatenate((w, old, g))
    if verdict == TAKES_BACK:
        w, old = saved[:n], saved[n:n + moments * n]
    same(d.get(weight, f, n), w, 'the weights')
    same(now[:len(old)], old, 'the moments')
    same(now[len(old) + HEADER:], saved, 'what is kept')


def tests(suite):
    for settles in (False, True):
        for norm, clips in ((LARGE, True), (SMALL, False), (INFINITE, True), (NO_NUMBER, True), (0, False)):
            for opened in (0, 1):
                verdict = TAKES_BACK if opened and clips else STANDS if settles else GOES_ON
                suite.test(f'judge, norm {norm}, {"open" if opened else "nothing open"}, {"settles" if settles else "goes on"}', judge,
                           opened, norm, settles, verdict)
    for verdict in (GOES_ON, TAKES_BACK, STANDS):
        for n in (4, 1000):
            for moments in range(3):
                suite.test(f'copy {n}, {moments} moments, verdict {verdict}', copy_kept, n, moments, verdict)
