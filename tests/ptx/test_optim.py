"""optim.cu: updates, bit for bit, with each product, sum, quotient and root rounded to fp32 on its own."""
import numpy as np

from check import address, ceil, encode, kind, numbers, same, without_barriers, Device, PRECISIONS

f = np.float32
RATES = {'lr': f(0.5), 'beta1': f(0.9), 'beta2': f(0.95), 'eps': f(1e-8), 'decay': f(0.1)}  # lr is read from the device


def sgd(w, g, moments, lr, step):
    return w - lr * g, []


def adamw(w, g, moments, lr, step):
    p, one = RATES, f(1)
    unbias, unbias2 = (f(1 / (1 - float(p[b]) ** step)) for b in ('beta1', 'beta2'))
    mean, square = moments
    mean = p['beta1'] * mean + (one - p['beta1']) * g
    square = p['beta2'] * square + (one - p['beta2']) * g * g
    move = mean * unbias / (np.sqrt(square * unbias2) + p['eps'])
    return w - lr * (move + p['decay'] * w), [mean, square]


def update(suite, T, name, formula, moments, n, step, most=132 * 8):
    random, d = np.random.default_rng(n), Device()
    w, g = numbers(random, n, 'float').astype(f), numbers(random, n, 'float').astype(f)
    old = [np.abs(numbers(random, n, 'float')).astype(f) for _ in range(moments)]
    master, lr = T != 'float', f(0.01)
    state = np.concatenate(([w] if master else []) + old + [np.zeros(0, f)])
    weights = d.buffer(encode(w, T), 'w' if master else 'rw')
    opt = d.buffer(state, 'rw')
    if step == 1:  # moments are as yet nobody's
        d.state[(opt - d.BASE + (4 * n if master else 0)) // 2:(opt - d.BASE + 4 * len(state)) // 2] &= ~np.uint8(4)
        old = [v * 0 for v in old]
    arguments = [address(weights), address(d.buffer(g)), address(opt), np.int64(n),
                 np.array([*RATES.values(), 1, 1], f).tobytes(), address(d.buffer(np.array([step], np.int64))),
                 address(d.buffer(np.array([lr])))]
    suite.run(f'update<{T}, {name}, {moments}>', d, [min(ceil(n, 1024), most)], [256], arguments)
    want, after = formula(w, g, old, lr, step)
    same(d.get(weights, kind(T), n), encode(want, T), 'the weights')
    if len(state):
        same(d.get(opt, f, len(state)), np.concatenate(([want] if master else []) + after), 'the state')


def count(suite, step, words):
    d = Device()
    at, reached = d.buffer(np.array([step], np.int64), 'rw'), d.buffer(np.full(words + 1, 7, np.uint32), 'rw')
    suite.run('count', d, [1], [1], [address(at), address(reached), np.int32(words)])
    assert d.get(at, np.int64, 1)[0] == step + 1
    assert list(d.get(reached, np.uint32, words + 1)) == [0] * (words - 1) + [(step + 1) % 2**32] * (words > 0) + [7]


def tests(suite):
    for T in PRECISIONS:
        for name, formula, moments in (('sgd', sgd, 0), ('adamw', adamw, 2)):
            for n in (4, 1024, 2052):
                for step in (1, 2, 1001):
                    suite.test(f'{name}, {T}, {n}, step {step}', update, T, name, formula, moments, n, step)
            suite.test(f'{name}, {T}, one block', update, T, name, formula, moments, 7172, 3, 1)
    for words in (0, 1, 9):
        suite.test(f'count, {words} words', count, 2**33 + 4, words)
    suite.test('update without its barrier', without_barriers, 'update<float, adamw, 2>', 1, update, 'float', 'adamw',
               adamw, 2, 1024, 2)
