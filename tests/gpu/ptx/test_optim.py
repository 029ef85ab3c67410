"""optim.cu: updates, bit for bit, with each product, sum, quotient and root rounded to fp32 on its own."""
import math
import pathlib
import re
from fractions import Fraction

import numpy as np

from check import address, ceil, encode, kind, numbers, same, without_barriers, Device, PRECISIONS

f = np.float32
RATES = {'lr': f(0.5), 'beta1': f(0.9), 'beta2': f(0.95), 'eps': f(1e-8), 'decay': f(0.1), 'momentum': f(0.75),
         'final': f(0.125), 'cooldown': f(0.3), 'clip': f(0.25)}
OPTIMIZERS = {'sgd': 1, 'adamw': 2, 'momentum': 3}
SCHEDULES = ['constant', 'linear', 'cosine', 'wsd']


def rate(step, schedule, warmup, steps):
    """Returns the rate, computed from the description in layers/rate.h in Python's doubles, with libm's cosine."""
    lr, final, t = float(RATES['lr']), float(RATES['final']), step - 1
    if t < warmup:
        return f(lr * (t + 1) / warmup)
    start = max(warmup, steps - round(float(RATES['cooldown']) * steps)) if schedule == 'wsd' else warmup
    x = min(max((t - start) / (steps - start), 0), 1) if steps > start else 1
    down = {'constant': 0, 'linear': x, 'cosine': (1 - math.cos(math.pi * x)) / 2, 'wsd': math.sqrt(x)}[schedule]
    return f(lr * (1 - (1 - final) * down))


def model(schedule, warmup, steps, nesterov=0):
    """Returns a struct rt_model, with the optimizer's fields as RATES and COUNTS of model.h list them."""
    header = pathlib.Path('runtime/model.h').read_text()
    words = {name: re.findall(r'X\((\w+)\)', re.search(rf'#define {name}\(X\)(.*(?:\\\n.*)*)', header)[1])
             for name in ('RATES', 'COUNTS')}
    counts = {'schedule': SCHEDULES.index(schedule), 'warmup': warmup, 'steps': steps, 'nesterov': nesterov}
    made = np.zeros(7, np.int32).tobytes() + np.array([RATES.get(w, 0) for w in words['RATES']], f).tobytes()
    made += np.array([counts.get(w, 0) for w in words['COUNTS']], np.int32).tobytes() + np.zeros(5, np.int32).tobytes()
    return made + bytes(-len(made) % 8) + bytes(24)


def sgd(w, g, moments, lr, step, decays):
    return w - lr * g, []


def momentum(w, g, moments, lr, step, decays):
    velocity = RATES['momentum'] * moments[0] + g
    return w - lr * (g + RATES['momentum'] * velocity), [velocity]


def adamw(w, g, moments, lr, step, decays):
    p, one = RATES, f(1)
    unbias, unbias2 = (f(1 / (1 - float(p[b]) ** step)) for b in ('beta1', 'beta2'))
    mean, square = moments
    mean = p['beta1'] * mean + (one - p['beta1']) * g
    square = p['beta2'] * square + (one - p['beta2']) * g * g
    move = mean * unbias / (np.sqrt(square * unbias2) + p['eps'])
    return w - lr * (move + np.where(decays, p['decay'], f(0)) * w), [mean, square]


def update(suite, T, name, formula, moments, n, step, most=132 * 8, scale=1, more=0, schedule='cosine', turns=(3, 700),
           part=None, norm=None, verdict=None, settles=False):
    """Tests an update. more: the period's updates, if a step with `each` updates repeats a period. turns: where weights
    that decay begin and end. part: the launch's elements. norm: the sum of squares, in units of 2^-298. verdict
    (layers/post_validation.h): 0: the update is made, and nothing is clipped; 1: it is the one before; 2: there is
    none."""
    random, d = np.random.default_rng(n), Device()
    w, g = numbers(random, n, 'float').astype(f), numbers(random, n, 'float').astype(f)
    old = [np.abs(numbers(random, n, 'float')).astype(f) for _ in range(moments)]
    master, (lo, hi) = T != 'float', part or (0, n)
    warmup, steps = 5, 1500
    state = np.concatenate(([w] if master else []) + old + [np.zeros(0, f)])
    weights = d.buffer(encode(w, T), 'w' if master and not part else 'rw')
    opt = d.buffer(state, 'rw')
    if step == 1:  # moments are still uninitialised
        d.state[(opt - d.BASE + (4 * n if master else 0)) // 2:(opt - d.BASE + 4 * len(state)) // 2] &= ~np.uint8(4)
        old = [v * 0 for v in old]
    counted, number = numbered(step + (verdict == 1 and not settles), more)
    words, factor = clipped(norm)
    factor = f(1) if verdict == 0 else factor
    kept = 0 if verdict is None else d.buffer(np.array([9, verdict] + [9] * 14, np.int32))
    table = np.array([lo, hi, len(turns), *turns, *[0] * (192 - len(turns))], np.int64)
    arguments = [address(weights), address(d.buffer(g)), f(scale), address(0 if norm is None else d.buffer(words)), address(opt), np.int64(n),
                 model(schedule, warmup, steps, 1),
                 np.array([d.buffer(counted), *number, steps, kept, settles], np.int64).tobytes(), table.tobytes()]
    suite.run(f'update<{T}, {OPTIMIZERS[name]}, {moments}>', d, [min(ceil(hi - lo, 1024), most)], [256], arguments)
    decays = np.searchsorted(np.array(turns), np.arange(n), side='right') % 2 == 1
    want, after = formula(w, f(scale) * factor * g, old, rate(step, schedule, warmup, steps), step, decays)
    outside = np.r_[0:lo, hi:n]
    for new, was in zip([want, *after], [w, *old]):
        new[outside] = was[outside]
        if verdict == 2:
            new[:] = was
    if norm == -2:
        assert np.isnan(d.get(weights, kind(T), n)).all()
        return
    same(d.get(weights, kind(T), n), encode(want, T), 'the weights')
    if len(state):
        same(d.get(opt, f, len(state)), np.concatenate(([want] if master else []) + after), 'the state')


def clipped(norm):
    """Returns the words of a norm, as sums over ranks with pending carries; and the factor by PyTorch's formula."""
    if norm is None:
        return None, f(1)
    words = [norm >> 32 * i & 0xffffffff for i in range(19)] + [0, 0]
    for i in range(18):
        if words[i + 1] > 2:
            words[i + 1], words[i] = words[i + 1] - 3, words[i] + (3 << 32)
    if norm < 0:
        return np.array([7] * 19 + [1, 1 if norm < -1 else 0], np.uint64), f('nan') if norm < -1 else f(0)
    root = math.sqrt(fraction(norm))
    return np.array(words, np.uint64), f(min(1, float(RATES['clip']) / (root + 1e-6)))


def fraction(norm):
    """Returns the nearest double."""
    return float(Fraction(norm, 2**298))


def numbered(step, more, each=12):
    """Returns what the device has counted, and each, place, more, for the update of that number, from 1."""
    rest = (step - 1) % each
    repetition, place = divmod(rest, more) if more else (5, rest)  # without more, nothing repeats, so any count will do
    return np.array([(step - 1) // each + 1, repetition], np.int64), (each, place, more)


def count(suite, step, words, what, repetitions=3):
    """Tests the passes of a step: one that begins it, its repetitions, one that ends it."""
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
        for name, formula, moments in (('sgd', sgd, 0), ('momentum', momentum, 1), ('adamw', adamw, 2)):
            for n in (4, 1024, 2052):
                for step in (1, 2, 1001):
                    suite.test(f'{name}, {T}, {n}, step {step}', update, T, name, formula, moments, n, step)
            suite.test(f'{name}, {T}, one block', update, T, name, formula, moments, 7172, 3, 1)
            suite.test(f'{name}, {T}, scaled, in a period', update, T, name, formula, moments, 1024, 1001, 9, 0.25, 3)
        for schedule in SCHEDULES:
            for step in (1, 5, 6, 750, 1051, 1500, 1501):
                suite.test(f'{schedule}, {T}, step {step}', update, T, 'sgd', sgd, 0, 4, step, 132 * 8, 1, 0, schedule)
        suite.test(f'decay in turns, {T}', update, T, 'adamw', adamw, 2, 2052, 2, 132 * 8, 1, 0,
                   'linear', (0, 5, 6, 1030, 2049, 2052))
        suite.test(f'a part, {T}', update, T, 'adamw', adamw, 2, 2052, 2, 132 * 8, 1, 0, 'wsd',
                   (3, 700), (1024, 2048))
        suite.test(f'behind a matrix of Muon, {T}', update, T, 'adamw', adamw, 2, 2052, 2, 132 * 8, 1, 0, 'wsd',
                   (3, 700), (1027, 2052))
    sums = {'small': 2**290, 'large': 9 * 2**296 + 1, 'odd': 3**250, 'halves': (2**53 + 1) << 250, 'more': ((2**53 + 1) << 250) + 1,
            'least': 1, 'most': 2**600 - 1, 'none': 0, 'infinite': -1, 'no number': -2}
    for what, norm in sums.items():
        suite.test(f'clipped to a norm, {what}', update, 'float', 'sgd', sgd, 0, 1024, 2, 132 * 8, 0.5, 0, 'cosine', (), None,
                   norm)
    for verdict, settles in ((0, False), (1, False), (1, True), (2, True)):
        for T in ['float'] if verdict == 2 else PRECISIONS:  # without an update, bf16 weights are not written
            suite.test(f'verdict {verdict}, {T}{", settles" if settles else ""}', update, T, 'adamw', adamw, 2, 2052, 40, 132 * 8, 1, 0,
                       'cosine', (3, 700), None, 9 * 2**296 + 1, verdict, settles)
    for what in ('begins', 'repeats', 'ends'):
        for words in (0, 1, 9):
            suite.test(f'count, {what}, {words} words', count, 2**33 + 4, words, what)
    suite.test('update without its barrier', without_barriers, 'update<float, 2, 2>', 1, update, 'float', 'adamw',
               adamw, 2, 1024, 2)
