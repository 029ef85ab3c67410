"""muon.cu's element-wise kernels, bit for bit: the direction and its squares, its length, the move. The products are
cuBLASLt's."""
import numpy as np

from check import address, encode, kind, numbers, same, without_barriers, Device, PRECISIONS
from test_optim import RATES, clipped, model, numbered, rate

f, BLOCKS, THREADS = np.float32, 132, 256


def begun(d, step, norm=None, schedule='cosine', warmup=5, steps=1500, more=0):
    """Returns an update kernel's view of the model and of the update's number."""
    counted, number = numbered(step, more)
    return model(schedule, warmup, steps), np.array([d.buffer(counted), *number, steps, 0, 0], np.int64).tobytes()


def direct(suite, n, step, norm=None, scale=1, blocks=BLOCKS):
    random, d = np.random.default_rng(n), Device()
    g, old, last = (numbers(random, n, 'float').astype(f) for _ in range(3))
    old = np.abs(old)
    words, factor = clipped(norm)
    momentum, second = d.buffer(old, 'rw'), d.buffer(last, 'rw')
    x, parts = d.buffer(np.zeros(n, f), 'w'), d.buffer(np.zeros(blocks), 'w')
    if step == 1:  # moments are still uninitialised
        for at in (momentum, second):
            d.state[(at - d.BASE) // 2:(at - d.BASE + 4 * n) // 2] &= ~np.uint8(4)
        old, last = old * 0, last * 0
    of_model, number = begun(d, step)
    suite.run('direct', d, [blocks], [THREADS],
              [address(momentum), address(second), address(d.buffer(g)), f(scale),
               address(d.buffer(words)) if norm else np.uint64(0),
               np.int64(n), of_model, number, address(x), address(parts)])
    keep, take = RATES['momentum'], f(1) - RATES['momentum']
    g = f(f(scale) * factor) * g
    v = keep * old + take * g
    y = keep * v + take * g
    same(d.get(momentum, f, n), v, 'the momentum')
    same(d.get(second, f, n), last, 'the second moment')
    same(d.get(x, f, n), y, 'the direction')
    got = d.get(parts, float, blocks)
    for b in range(blocks):
        mine = np.concatenate([y[i:i + THREADS] for i in range(b * THREADS, n, blocks * THREADS)] or [y[:0]]).astype(float)
        assert abs(got[b] - (mine * mine).sum()) <= 1e-13 * got[b], f'the squares of block {b}'


def divide_by_length(suite, n, blocks=2):
    random, d = np.random.default_rng(n), Device()
    x, parts = numbers(random, n, 'float').astype(f), np.abs(numbers(random, BLOCKS, 'float')).astype(float)
    at = d.buffer(x, 'rw')
    suite.run('divide_by_length', d, [blocks], [THREADS], [address(at), np.int64(n), address(d.buffer(parts))])
    total = 0.0
    for part in parts:
        total += part
    same(d.get(at, f, n), x * f(1 / (np.sqrt(total) + 1e-7)), 'unit length')


def go_along(suite, T, n, step, scale, blocks=2):
    random, d = np.random.default_rng(n), Device()
    w, x = (numbers(random, n, 'float').astype(f) for _ in range(2))
    master = d.buffer(w, 'rw')
    weights = d.buffer(encode(w, T), 'w') if T != 'float' else master
    of_model, number = begun(d, step)
    suite.run(f'go_along<{T}>', d, [blocks], [THREADS],
              [address(weights), address(master), address(d.buffer(x)), f(scale), np.int64(n), of_model, number])
    lr = rate(step, 'cosine', 5, 1500)
    want = w - (lr * (RATES['decay'] * w) + lr * f(scale) * x)
    same(d.get(master, f, n), want, 'the masters')
    same(d.get(weights, kind(T), n), encode(want, T), 'the weights')


def tests(suite):
    for n in (1, 35, 1000, 3000):
        for step in (1, 2, 1001):
            suite.test(f'direct, {n}, step {step}', direct, n, step, None, 1, 3)
        suite.test(f'divide_by_length, {n}', divide_by_length, n)
    suite.test('direct, all blocks', direct, BLOCKS * THREADS + 5, 2)
    suite.test('direct, clipped', direct, 1000, 2, 2**290, 0.5, 3)
    for T in PRECISIONS:
        for n, step, scale in ((1, 1, 1), (600, 7, 1), (1001, 1400, 1.7320508)):
            suite.test(f'go_along, {T}, {n}', go_along, T, n, step, scale)
    suite.test('direct without its barriers', without_barriers, 'direct', 2, direct, 1000, 2, None, 1, 3)
