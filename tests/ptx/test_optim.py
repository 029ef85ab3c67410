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


def update(suite, T, name, formula, moments, n, step, most=132 * 8, scale=1, more=0):
    """more: of a step with `each` updates, whose repetition on the device makes `more` each time."""
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
    counted, number = numbered(step, more)
    arguments = [address(weights), address(d.buffer(g)), f(scale), address(opt), np.int64(n),
                 np.array([*RATES.values(), 1, 1], f).tobytes(),
                 np.array([d.buffer(counted), *number], np.int64).tobytes(), address(d.buffer(np.array([lr])))]
    suite.run(f'update<{T}, {name}, {moments}>', d, [min(ceil(n, 1024), most)], [256], arguments)
    want, after = formula(w, f(scale) * g, old, lr, step)
    same(d.get(weights, kind(T), n), encode(want, T), 'the weights')
    if len(state):
        same(d.get(opt, f, len(state)), np.concatenate(([want] if master else []) + after), 'the state')


def numbered(step, more, each=12):
    """What the device has counted, and each, place, more, for the update of that number, from 1."""
    rest = (step - 1) % each
    repetition, place = divmod(rest, more) if more else (5, rest)  # without more, nothing repeats: any count will do
    return np.array([(step - 1) // each + 1, repetition], np.int64), (each, place, more)


def count(suite, step, words, what, repetitions=3):
    """The passes of a step: one that begins it, so many repetitions, one that ends it."""
    d, passes = Device(), repetitions + 2
    before, after, now = {'begins': ((step, 9), (step + 1, -1), 1), 'repeats': ((step + 1, 1), (step + 1, 2), 4),
                          'ends': ((step + 1, 2), (step + 1, 2), passes)}[what]
    at, reached = d.buffer(np.array(before, np.int64), 'rw'), d.buffer(np.full(words + 1, 7, np.uint32), 'rw')
    suite.run('count', d, [1], [1], [address(at), np.int32(['begins', 'repeats', 'ends'].index(what)), np.int64(passes),
                                     address(reached), np.int32(words)])
    assert list(d.get(at, np.int64, 2)) == list(after)
    others = [0 if what == 'begins' else 7] * (words - 1)
    assert list(d.get(reached, np.uint32, words + 1)) == others + [(step * passes + now) % 2**32] * (words > 0) + [7]


def tests(suite):
    for T in PRECISIONS:
        for name, formula, moments in (('sgd', sgd, 0), ('adamw', adamw, 2)):
            for n in (4, 1024, 2052):
                for step in (1, 2, 1001):
                    suite.test(f'{name}, {T}, {n}, step {step}', update, T, name, formula, moments, n, step)
            suite.test(f'{name}, {T}, one block', update, T, name, formula, moments, 7172, 3, 1)
            suite.test(f'{name}, {T}, scaled, in a period', update, T, name, formula, moments, 1024, 1001, 9, 0.25, 3)
    for what in ('begins', 'repeats', 'ends'):
        for words in (0, 1, 9):
            suite.test(f'count, {what}, {words} words', count, 2**33 + 4, words, what)
    suite.test('update without its barrier', without_barriers, 'update<float, adamw, 2>', 1, update, 'float', 'adamw',
               adamw, 2, 1024, 2)
