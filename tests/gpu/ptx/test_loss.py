"""loss.cu: a forward leaves the gradient and each row's loss."""
import struct

import numpy as np

from check import address, ceil, decode, encode, kind, near, numbers, same, wide, without_barriers, Device, PRECISIONS


def targets_of(random, rows, n, labels):
    """Targets of rows. labels: every second row has none that counts."""
    targets = random.integers(0, n, rows).astype(np.int32)
    targets[1::2] = np.where(labels, -1, targets[1::2])
    return targets


def divisor(d, count, labels):
    """The kernel's struct: a number, and with labels the place of another one, which counts instead."""
    counted = address(d.buffer(np.array([count], np.int64))) if labels else 0
    return struct.pack('<fxxxxQ', 1e9 if labels else count, counted)


def cross_entropy(suite, T, rows, n, in_place, labels=False):
    random, d = np.random.default_rng(n), Device()
    # up to 8, or so far apart that without the row's largest value e^x would overflow
    x = decode(encode(numbers(random, (rows, n), T) * (4 if n < 100 else 64), T))
    targets = targets_of(random, rows, n, labels)
    count, packs = rows * 3, n // (16 // PRECISIONS[T])
    threads = max(32, ceil(packs, 32) * 32 if packs < 1024 else 1024)
    logits = d.buffer(encode(x, T), 'rw' if in_place else 'r')
    dx = logits if in_place else d.buffer(encode(x, T), 'w')
    loss = d.buffer(np.zeros(rows), 'w')
    suite.run(f'cross_entropy<{T}, {wide(T, n)}>', d, [rows], [threads],
              [address(dx), address(loss), address(logits), address(d.buffer(targets)),
               divisor(d, count, labels), np.int32(n)])
    top = x.max(1, keepdims=True)
    e = np.exp(x - top)
    total = e.sum(1, keepdims=True)
    hot = np.zeros((rows, n))
    hot[np.arange(rows), targets] = 1
    hit = x[np.arange(rows), targets][:, None]
    counts = targets[:, None] >= 0
    near(d.get(loss, np.float64, (rows, 1)), counts * (np.log(total) + top - hit), counts * 2, 'the loss')
    near(d.get(dx, kind(T), (rows, n)), counts * (e / total - hot) / count,
         counts * ((e / total + hot) / count * 16 + 1e-30), 'dx')


def parts(suite, T, rows, n, members, in_place, labels=False):
    """Tests a team that divides the vocabulary: the statistics of each member's n columns, then each member's gradient."""
    random, whole = np.random.default_rng(n), n * members
    x = decode(encode(numbers(random, (rows, whole), T) * (4 if n < 100 else 64), T))
    targets = targets_of(random, rows, whole, labels)
    count, packs = rows * 3, n // (16 // PRECISIONS[T])
    threads = max(32, ceil(packs, 32) * 32 if packs < 1024 else 1024)
    apart = ceil(3 * rows, 16) * 16  # floats: a member's statistics end at a cache line
    top = x.reshape(rows, members, n).max(2)
    totals = np.exp(x.reshape(rows, members, n) - top[:, :, None]).sum(2)
    got = np.zeros((members, apart), np.float32)
    for i in range(members):
        d, mine = Device(), x[:, i * n:(i + 1) * n]
        here = (targets >= i * n) & (targets < (i + 1) * n)
        hit = np.where(here, x[np.arange(rows), targets], 0)
        all = d.buffer(np.zeros(3 * rows, np.float32), 'w')
        suite.run(f'row_statistics<{T}, {wide(T, n)}>', d, [rows], [threads],
                  [address(all), address(d.buffer(encode(mine, T))), address(d.buffer(targets)), np.int32(i * n),
                   np.int32(n)])
        stats = d.get(all, np.float32, (rows, 3))
        same(stats[:, 0], top[:, i].astype(np.float32))
        near(stats[:, 1], totals[:, i], totals[:, i] * 16, 'the sum')
        same(stats[:, 2], hit.astype(np.float32))
        got[i, :3 * rows] = stats.reshape(-1)
    peak = x.max(1, keepdims=True)
    e = np.exp(x - peak)
    total = e.sum(1, keepdims=True)
    hot = np.zeros((rows, whole))
    hot[np.arange(rows), targets] = 1
    for i in range(members):
        d, mine = Device(), slice(i * n, (i + 1) * n)
        logits = d.buffer(encode(x[:, mine], T), 'rw' if in_place else 'r')
        dx = logits if in_place else d.buffer(encode(x[:, mine], T), 'w')
        loss = d.buffer(np.zeros(rows), 'w')
        suite.run(f'part_cross_entropy<{T}, {wide(T, n)}>', d, [rows], [threads],
                  [address(dx), address(loss), address(logits), address(d.buffer(got)), np.int64(apart),
                   np.int32(members), address(d.buffer(targets)), np.int32(i * n), divisor(d, count, labels),
                   np.int32(n)])
        hit = x[np.arange(rows), targets][:, None]
        counts = targets[:, None] >= 0
        near(d.get(loss, np.float64, (rows, 1)), counts * (np.log(total) + peak - hit), counts * 2, 'the loss')
        near(d.get(dx, kind(T), (rows, n)), counts * ((e / total - hot) / count)[:, mine],
             counts * ((e / total + hot) / count * 16 + 1e-30)[:, mine], 'dx')


def mse(suite, T, rows, n, in_place):
    random, d = np.random.default_rng(n), Device()
    x, target, count = numbers(random, (rows, n), T), numbers(random, (rows, n), 'float'), rows * 3
    at = d.buffer(encode(x, T), 'rw' if in_place else 'r')
    dx, loss = at if in_place else d.buffer(encode(x, T), 'w'), d.buffer(np.zeros(rows), 'w')
    suite.run(f'mse<{T}>', d, [ceil(rows, 8)], [256],
              [address(dx), address(loss), address(at), address(d.buffer(encode(target, 'float'))), np.float32(count),
               np.int32(rows), np.int32(n)])
    near(d.get(loss, np.float64, rows), ((x - target) ** 2).sum(1) / 2, n * 8, 'the loss')
    near(d.get(dx, kind(T), (rows, n)), (x - target) / count, 4 / count, 'dx')


def row_losses(suite, T, rows, labels):
    """A model whose head computes the losses: the gradient of their mean."""
    random, d = np.random.default_rng(rows), Device()
    x = decode(encode(numbers(random, (rows,), T), T))
    targets = targets_of(random, rows, 9, labels)
    dx, loss = d.buffer(encode(x, T), 'w'), d.buffer(np.zeros(rows), 'w')
    suite.run(f'row_losses<{T}>', d, [ceil(rows, 256)], [256],
              [address(dx), address(loss), address(d.buffer(encode(x, T))), address(d.buffer(targets)),
               divisor(d, 7, labels), np.int32(rows)])
    counts = targets >= 0
    near(d.get(loss, np.float64, rows), counts * x, 0, 'the loss')
    near(d.get(dx, kind(T), rows), counts / 7, counts / 7 * 2, 'dx')


def mean(suite, rows, counted=None, zero=False):
    """counted: how many labels of the step count. zero: the mean of none is 0."""
    d = Device()
    loss = np.random.default_rng(rows).uniform(0, 9, rows) * (counted != 0)
    to = d.buffer(np.zeros(1, np.float32), 'w')
    place = address(d.buffer(np.array([counted], np.int64))) if counted is not None else 0
    suite.run('mean', d, [1], [1024], [address(to), address(d.buffer(loss)), np.int32(rows),
                                       np.float64(rows if counted is None else 0.25), np.uint64(place), np.uint8(zero)])
    wanted = loss.mean() if counted is None else 0 if not counted else loss.sum() / (counted * 0.25)
    if counted == 0 and not zero:
        assert np.isnan(d.get(to, np.float32, 1)[0]), 'the mean of nothing'
    else:
        near(d.get(to, np.float32, 1), np.array([wanted]), 0)


def copy(suite, T, n):
    d = Device()
    x = encode(numbers(np.random.default_rng(n), n, T), T)
    dx = d.buffer(x, 'w')
    suite.run(f'copy_gradient<{T}>', d, [ceil(n, 256 * 16 // PRECISIONS[T])], [256],
              [address(dx), address(d.buffer(x)), np.int64(n)])
    same(d.get(dx, kind(T), n), x)


def tests(suite):
    for T in PRECISIONS:
        for rows, n in ((3, 8), (5, 264), (2, 4128), (4, 1), (3, 37), (2, 1031)):
            for in_place in (False, True):
                what = f'cross_entropy, {T}, {rows} x {n}, in place {in_place}'
                suite.test(what, cross_entropy, T, rows, n, in_place)
            suite.test(f'cross_entropy of labels, {T}, {rows} x {n}', cross_entropy, T, rows, n, True, True)
        for rows, n, members in ((3, 8, 2), (5, 264, 2), (2, 1031, 3), (4, 1, 4)):
            for in_place in (False, True):
                what = f'cross_entropy of {members} members, {T}, {rows} x {n}, in place {in_place}'
                suite.test(what, parts, T, rows, n, members, in_place)
            suite.test(f'labels of {members} members, {T}, {rows} x {n}', parts, T, rows, n, members, True, True)
        for rows, n in ((1, 1), (11, 37), (9, 197)):
            for in_place in (False, True):
                suite.test(f'mse, {T}, {rows} x {n}, in place {in_place}', mse, T, rows, n, in_place)
        for rows in (1, 77, 300):
            for labels in (False, True):
                suite.test(f'losses of rows, {T}, {rows}, labels {labels}', row_losses, T, rows, labels)
        for n in (1, 2048, 4099):
            suite.test(f'copy, {T}, {n}', copy, T, n)
    for rows in (1, 77, 5051):
        suite.test(f'mean, {rows}', mean, rows)
        suite.test(f'mean of labels, {rows}', mean, rows, 5)
    suite.test('mean of no labels', mean, 77, 0)
    suite.test('mean of no labels, within the step', mean, 77, 0, True)
    suite.test('mean without barriers', without_barriers, 'mean', 1, mean, 2051)
    suite.test('cross_entropy without barriers', without_barriers, 'cross_entropy<float, 1>', 2, cross_entropy,
               'float', 2, 1031, True)
