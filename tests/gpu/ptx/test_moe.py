"""moe.cu: choices and places of tokens, their rows to the experts and back, and the gradients."""
import numpy as np

from check import address, ceil, decode, encode, kind, near, numbers, same, wide, without_barriers, Device, PRECISIONS


class Routing:
    """Sequences of `context` tokens, with random probabilities of the experts, and their choices and places, computed
    choice by choice from the rule in moe.h."""

    def __init__(self, random, context, sequences, experts, top, capacity, probability=None):
        self.context, self.experts, self.top, self.capacity = context, experts, top, capacity
        self.tokens, self.sequences, self.places = context * sequences, sequences, experts * sequences * capacity
        if probability is None:
            probability = random.uniform(0.1, 1, (self.tokens, experts))
            probability /= probability.sum(1, keepdims=True)
        self.p = probability.astype(np.float32)
        self.expert = np.array([sorted(range(experts), key=lambda e: (-p[e], e))[:top] for p in self.p], np.int32)
        self.chosen = np.take_along_axis(self.p, self.expert, 1).astype(np.float64)
        self.weight = (self.chosen / self.chosen.sum(1, keepdims=True) if top > 1 else self.chosen).astype(np.float32)
        self.seat()

    def seat(self):
        self.load = np.zeros((self.sequences, self.experts), np.int32)
        self.row = np.full((self.tokens, self.top), -1, np.int32)
        self.choice = np.full(self.places, -1, np.int32)
        for s in range(self.sequences):
            for k in range(self.top):
                for t in range(s * self.context, (s + 1) * self.context):
                    e = self.expert[t, k]
                    if self.load[s, e] < self.capacity:
                        self.row[t, k] = (e * self.sequences + s) * self.capacity + self.load[s, e]
                        self.choice[self.row[t, k]] = t * self.top + k
                    self.load[s, e] += 1

    def place(self, d, **access):
        """Returns struct routing of moe.h and its arrays' addresses; access: for arrays that the kernel does not only
        read."""
        at = [d.buffer(getattr(self, name), access.get(name, 'r'))
              for name in ('p', 'weight', 'expert', 'row', 'choice', 'load')]
        head = np.array([self.tokens, self.places, self.sequences, 0], np.int32).tobytes()
        return head + np.array(at, np.uint64).tobytes(), at


def choose(suite, T, n, shape, ties):
    random, d = np.random.default_rng(n), Device()
    r = Routing(random, *shape)
    x = numbers(random, (r.tokens, n), T, integers=ties) / (1 if ties else 4)
    router = numbers(random, (n, r.experts), T, integers=ties) / (8 if ties else 4)
    if ties:
        router[:, 1:] = np.repeat(router[:, :1], r.experts - 1, 1)
        router[:, -1] += random.integers(0, 2, n) / 8
    given, at = r.place(d, p='ws', weight='ws', expert='ws')
    x, router = (decode(encode(a, T)) for a in (x, router))
    suite.run(f'choose<{T}>', d, [ceil(r.tokens, 8)], [256],
              [given, address(d.buffer(encode(x, T))), address(d.buffer(encode(router, T))), np.int32(n),
               np.int32(r.experts), np.int32(r.top)])
    got = d.get(at[0], np.float32, (r.tokens, r.experts))
    logits = x @ router
    e = np.exp(logits - logits.max(1, keepdims=True))
    near(got, e / e.sum(1, keepdims=True), 1 + np.abs(x) @ np.abs(router) * e / e.sum(1, keepdims=True))
    want = Routing(random, *shape, got)
    same(d.get(at[2], np.int32, want.expert.shape), want.expert, 'the experts')
    near(d.get(at[1], np.float32, want.weight.shape), want.weight.astype(np.float64), 1, 'their weights')


def seat(suite, shape):
    random, d = np.random.default_rng(1), Device()
    r = Routing(random, *shape)
    given, at = r.place(d, row='w', choice='w', load='w')
    suite.run('seat', d, [ceil(r.experts, 8), r.sequences], [256],
              [given, np.int32(r.context), np.int32(r.experts), np.int32(r.top), np.int32(r.capacity)])
    same(d.get(at[3], np.int32, r.row.shape), r.row, 'rows')
    same(d.get(at[4], np.int32, r.choice.shape), r.choice, 'choices')
    same(d.get(at[5], np.int32, r.load.shape), r.load, 'loads')


def count_pairs(suite, shape):
    d = Device()
    r = Routing(np.random.default_rng(1), *shape)
    routed = d.buffer(np.array([5, 7], np.int64), 'rw')
    suite.run('count_pairs', d, [1], [256], [address(routed), r.place(d)[0], np.int32(r.experts), np.int32(r.capacity)])
    same(d.get(routed, np.int64, 2), np.array([5 + r.tokens * r.top, 7 + (r.row < 0).sum()]))


def rows(suite, T, n, shape):
    """Tests rows of tokens to the experts, back, and the gradient of what came back."""
    random = np.random.default_rng(n)
    r = Routing(random, *shape)
    V, there, owner = wide(T, n), r.choice >= 0, np.maximum(r.choice, 0) // r.top

    def run(kernel, count, *given):
        d = Device()
        y = d.buffer(np.zeros((count, n), kind(T)), 'w')
        suite.run(f'{kernel}<{T}, {V}>', d, [ceil(count * n, 256 * V)], [256],
                  [address(y)] + [address(d.buffer(encode(a, T))) for a in given] +
                  [r.place(d)[0], np.int32(r.top), np.int32(n)])
        return d.get(y, kind(T), (count, n))

    x = numbers(random, (r.tokens, n), T)
    same(run('send', r.places, x), encode(np.where(there[:, None], x[owner], 0), T))
    weight = r.weight.reshape(-1)[np.maximum(r.choice, 0)].astype(np.float64)
    want = np.where(there[:, None], x[owner] * weight[:, None], 0)
    near(run('send_weighted', r.places, x), want, np.abs(want))
    x = numbers(random, (r.places, n), T)
    terms = np.where(r.row[:, :, None] >= 0, x[r.row] * r.weight[:, :, None].astype(np.float64), 0)
    near(run('bring_back', r.tokens, x), terms.sum(1), np.abs(terms).sum(1))


def gate_gradient(suite, T, n, shape):
    random, d = np.random.default_rng(n), Device()
    r = Routing(random, *shape)
    x, dy = numbers(random, (r.places, n), T), numbers(random, (r.tokens, n), T)
    out = d.buffer(np.zeros((r.tokens, r.experts), np.float32), 'w')
    suite.run(f'gate_gradient<{T}>', d, [ceil(r.tokens, 8)], [256],
              [address(out), address(d.buffer(encode(x, T))), address(d.buffer(encode(dy, T))), r.place(d)[0],
               np.int32(r.experts), np.int32(r.top), np.int32(n)])
    want, size = np.zeros((r.tokens, r.experts)), np.zeros((r.tokens, r.experts))
    for t in range(r.tokens):
        for k in range(r.top):
            if r.row[t, k] >= 0:
                want[t, r.expert[t, k]] = x[r.row[t, k]] @ dy[t]
                size[t, r.expert[t, k]] = np.abs(x[r.row[t, k]]) @ np.abs(dy[t])
    near(d.get(out, np.float32, want.shape), want, size)


def logits_gradient(suite, shape, each):
    random, d = np.random.default_rng(3), Device()
    r = Routing(random, *shape)
    given = random.uniform(-2, 2, (r.tokens, r.top)).astype(np.float32)
    at = np.zeros((r.tokens, r.experts), np.float32)
    np.put_along_axis(at, r.expert, given, 1)
    out = d.buffer(at, 'rw')
    suite.run('logits_gradient', d, [ceil(r.tokens, 8)], [256],
              [address(out), r.place(d)[0], np.int32(r.context), np.int32(r.experts), np.int32(r.top), np.float32(each)])
    p, total = r.p.astype(np.float64), r.chosen.sum(1, keepdims=True)
    slope = np.zeros(p.shape)  # the loss's, by p: weights are p over the chosen ones' sum, or p itself
    of_chosen = given.astype(np.float64)
    if r.top > 1:
        of_chosen = of_chosen / total - (of_chosen * r.chosen).sum(1, keepdims=True) / total**2
    np.put_along_axis(slope, r.expert, of_chosen, 1)
    slope += np.float32(each) * np.repeat(r.load, r.context, 0)
    want = p * (slope - (p * slope).sum(1, keepdims=True))
    near(d.get(out, np.float32, want.shape), want, 8 * (np.abs(slope).max() + 1))


def route_gradient(suite, T, n, shape):
    random, d = np.random.default_rng(n), Device()
    r = Routing(random, *shape)
    router, dy = numbers(random, (n, r.experts), T), numbers(random, (r.places, n), T)
    logits = random.uniform(-1, 1, (r.tokens, r.experts)).astype(np.float32)
    dx, V = d.buffer(np.zeros((r.tokens, n), kind(T)), 'w'), wide(T, n)
    suite.run(f'route_gradient<{T}, {V}>', d, [ceil(r.tokens * n, 256 * V)], [256],
              [address(dx), address(d.buffer(encode(dy, T))), address(d.buffer(logits)),
               address(d.buffer(encode(router, T))), r.place(d)[0], np.int32(r.experts), np.int32(r.top), np.int32(n)])
    back = np.where(r.row[:, :, None] >= 0, dy[r.row], 0)
    near(d.get(dx, kind(T), (r.tokens, n)), logits @ router.T + back.sum(1),
         np.abs(logits) @ np.abs(router.T) + np.abs(back).sum(1))


def router_gradient(suite, T, count, n, experts, parts, first):
    random, d = np.random.default_rng(n), Device()
    x, logits = numbers(random, (count, n), T), random.uniform(-1, 1, (count, experts)).astype(np.float32)
    before = random.uniform(-1, 1, (parts, n, experts)).astype(np.float32)
    out = d.buffer(before, 'w' if first else 'rw')
    suite.run(f'router_gradient<{T}>', d, [ceil(n, 32), parts], [32, 8],
              [address(out), address(d.buffer(encode(x, T))), address(d.buffer(logits)), np.int32(count), np.int32(n),
               np.int32(experts), np.uint8(first)])
    got = d.get(out, np.float32, before.shape).astype(np.float64) - (0 if first else before)
    near(got.sum(0), x.T @ logits, np.abs(x.T) @ np.abs(logits) + 1)


def swap_blocks(suite, T, a, b, n):
    d = Device()
    x, V = numbers(np.random.default_rng(n), (a, b, n), T), wide(T, n)
    to = d.buffer(np.zeros((b, a, n), kind(T)), 'w')
    suite.run(f'swap_blocks<{T}, {V}>', d, [ceil(a * b * n, 256 * V)], [256],
              [address(to), address(d.buffer(encode(x, T))), np.int32(a), np.int32(b), np.int64(n // V)])
    same(d.get(to, kind(T), (b, a, n)), encode(x.transpose(1, 0, 2), T))


# context, sequences, experts, top, capacity: with room for all choices, and without; more experts than a block, or a
# warp, handles
SHAPES = [(8, 2, 4, 1, 8), (10, 3, 4, 2, 3), (40, 2, 3, 2, 20), (37, 1, 9, 3, 2), (6, 2, 33, 2, 1), (5, 1, 40, 5, 5)]


def tests(suite):
    for shape in SHAPES:
        suite.test(f'seat, {shape}', seat, shape)
        suite.test(f'count_pairs, {shape}', count_pairs, shape)
        for each in (0, 0.25):
            suite.test(f'logits_gradient, {shape}', logits_gradient, shape, each)
        for T in PRECISIONS:
            for n in (24, 7):
                for ties in (False, True):
                    suite.test(f'choose, {T}, {n}, {shape}, {ties}', choose, T, n, shape, ties)
                suite.test(f'rows, {T}, {n}, {shape}', rows, T, n, shape)
                suite.test(f'gate_gradient, {T}, {n}, {shape}', gate_gradient, T, n, shape)
                suite.test(f'route_gradient, {T}, {n}, {shape}', route_gradient, T, n, shape)
    suite.test('count_pairs without barriers', without_barriers, 'count_pairs', 3, count_pairs, (40, 7, 40, 2, 1))
    for T in PRECISIONS:
        for a, b, n in ((1, 6, 40), (2, 3, 136), (4, 1, 8), (3, 5, 77)):
            suite.test(f'swap_blocks, {T}, {a} x {b} of {n}', swap_blocks, T, a, b, n)
        for parts, first in ((1, True), (1, False), (3, True)):
            suite.test(f'router_gradient, {T}, {parts}', router_gradient, T, 50, 37, 11, parts, first)
