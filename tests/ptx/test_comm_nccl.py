"""comm_nccl.cu: the sum of all ranks' shares, in rank order."""
import numpy as np

from check import Device, address, ceil, numbers, same


def add_ranks(suite, n, ranks, me, blocks):
    random, d = np.random.default_rng(n), Device()
    shares, stride = [numbers(random, n, 'float').astype(np.float32) for _ in range(ranks)], n + 3
    others = np.zeros((ranks - 1, stride), np.float32)
    for r in range(ranks):
        if r != me:
            others[(me - r) % ranks - 1, :n] = shares[r]
    mine = d.buffer(shares[me], 'rw')
    suite.run('add_ranks', d, [blocks], [256], [address(mine), address(d.buffer(others)), np.int64(n), np.int64(stride),
                                                np.int32(ranks), np.int32(me)])
    want = shares[0]
    for r in range(1, ranks):
        want = want + shares[r]
    same(d.get(mine, np.float32, n), want)


def tests(suite):
    for n in (1, 259, 1025):
        for ranks, me in ((2, 0), (2, 1), (5, 0), (5, 3), (7, 6)):
            for blocks in {1, min(ceil(n, 256), 132 * 4)}:
                suite.test(f'add_ranks, {n}, rank {me} of {ranks}, {blocks} blocks', add_ranks, n, ranks, me, blocks)
