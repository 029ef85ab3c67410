"""comm_put.cu: the sum of all members' shares, in their order: to one of the shares, to other memory, or added to that."""
import numpy as np

from check import Device, PRECISIONS, address, ceil, encode, kind, numbers, same

MEMBERS = 64


def add_shares(suite, T, n, ranks, me, blocks, first=True):
    random, d = np.random.default_rng(n), Device()
    shares = [numbers(random, n, T).astype(np.float32) for _ in range(ranks)]
    at = [d.buffer(encode(s, T), 'rw' if r == me else 'r') for r, s in enumerate(shares)]
    old = numbers(random, n, T).astype(np.float32)
    to = at[me] if me < ranks else d.buffer(encode(old, T), 'rw')
    members = np.array(at + [0] * (MEMBERS - ranks), np.uint64).tobytes()
    suite.run(f'add_shares<{T}>', d, [blocks], [256],
              [address(to), members, np.int32(ranks), np.bool_(first), np.int64(n)])
    want = shares[0]
    for r in range(1, ranks):
        want = want + shares[r]
    if not first:
        want = want + (shares[me] if me < ranks else old)
    same(d.get(to, kind(T), n), encode(want, T))


def tests(suite):
    for T in PRECISIONS:
        for n in (1, 3, 1027, 4096):
            for ranks, me in ((1, 0), (2, 1), (5, 0), (6, 5), (7, 3)):
                for blocks in {1, min(ceil(n, 256 * 16 // PRECISIONS[T]), 132 * 4)}:
                    suite.test(f'add_shares, {T}, {n}, rank {me} of {ranks}, {blocks} blocks', add_shares, T, n, ranks,
                               me, blocks)
            for ranks, me in ((5, 5), (3, 1), (4, 4)):
                for first in (True, False):
                    suite.test(f'add_shares, {T}, {n}, of {ranks} {"to" if first else "onto"} {me}', add_shares, T, n,
                               ranks, me, 2, first)
