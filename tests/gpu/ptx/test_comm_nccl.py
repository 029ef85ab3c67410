"""comm_nccl.cu: the sum of all ranks' shares, in rank order, in place of this rank's share or elsewhere."""
import numpy as np

from check import Device, PRECISIONS, address, ceil, encode, kind, numbers, same


def add_ranks(suite, T, n, ranks, me, blocks, in_place=True, first=True):
    random, d = np.random.default_rng(n), Device()
    shares, stride = [numbers(random, n, T).astype(np.float32) for _ in range(ranks)], n + 3
    others = np.zeros((ranks - 1, stride), kind(T))
    for r in range(ranks):
        if r != me:
            others[(me - r) % ranks - 1, :n] = encode(shares[r], T)
    mine, old = d.buffer(encode(shares[me], T), 'rw' if in_place else 'r'), numbers(random, n, T).astype(np.float32)
    to = mine if in_place else d.buffer(encode(old, T), 'rw')
    suite.run(f'add_ranks<{T}>', d, [blocks], [256],
              [address(to), address(mine), address(d.buffer(others)), np.int64(n), np.int64(stride), np.int32(ranks),
               np.int32(me), np.bool_(first)])
    want = shares[0]
    for r in range(1, ranks):
        want = want + shares[r]
    if not first:
        want = want + (shares[me] if in_place else old)
    same(d.get(to, kind(T), n), encode(want, T))


def tests(suite):
    for T in PRECISIONS:
        for n in (1, 259, 1025):
            for ranks, me in ((2, 0), (2, 1), (5, 0), (5, 3), (7, 6)):
                for blocks in {1, min(ceil(n, 256), 132 * 4)}:
                    suite.test(f'add_ranks, {T}, {n}, rank {me} of {ranks}, {blocks} blocks', add_ranks, T, n, ranks, me,
                               blocks)
            for ranks, me in ((2, 1), (5, 3)):
                for in_place, first in ((True, False), (False, True), (False, False)):
                    name = f'add_ranks, {T}, {n}, rank {me} of {ranks}, {"in place" if in_place else "elsewhere"}'
                    suite.test(name + (', added' if not first else ''), add_ranks, T, n, ranks, me, 2, in_place, first)
