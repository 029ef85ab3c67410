"""aoti_cuda.cu: copies between layouts, uniform numbers from SplitMix64, and gradients that are copied or added."""
import numpy as np

from check import address, ceil, same, Device

MASK = (1 << 64) - 1


def copies(suite, T, kind, shape=(3, 5, 7)):
    random, d, n = np.random.default_rng(1), Device(), int(np.prod(shape))
    x = random.integers(0, 200, shape).astype(kind)
    room = np.zeros(n + n % 2, kind)
    to, of = d.buffer(room, 'w'), d.buffer(np.resize(x, room.shape))
    strides = np.zeros(24, np.int64)
    strides[0:3], strides[8:11] = shape, (1, shape[0], shape[0] * shape[1])
    strides[16:19] = (shape[1] * shape[2], shape[2], 1)
    suite.run(f'copy_elements<{T}>', d, [ceil(n, 32)], [32],
              [address(to), address(of), np.int64(n), strides.tobytes() + np.array([3, 0], np.int32).tobytes()])
    assert (d.get(to, kind, (n,)) == x.transpose(2, 1, 0).reshape(-1)).all(), 'the copy differs'


def split_mix(a, b):
    z = (a + (b + 1) * 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def numbers(suite):
    d, n, seed = Device(), 50, 0xfedcba9876543210
    to = d.buffer(np.zeros(n, np.float32), 'w')
    suite.run('uniform_numbers', d, [2], [32], [address(to), np.int64(n), address(d.buffer(np.array([seed], np.uint64)))])
    same(d.get(to, np.float32, (n,)), np.array([(split_mix(seed, i) >> 40) / 2**24 for i in range(n)], np.float32))


def gradients(suite, add):
    random, d, n = np.random.default_rng(2), Device(), 45
    old, more = (random.integers(-8, 9, n).astype(np.float32) for _ in range(2))
    dw = d.buffer(old, 'rw')
    suite.run('give_gradient', d, [2], [32], [address(dw), address(d.buffer(more)), np.int64(n), np.bool_(add)])
    same(d.get(dw, np.float32, (n,)), old + more if add else more)


def tests(suite):
    for T, kind in (('unsigned short', np.uint16), ('unsigned int', np.uint32), ('unsigned long', np.uint64)):
        suite.test(f'copies, {T}', copies, T, kind)
    # the executor's memory has cells of two bytes, so it sees races of bytes that lie side by side
    suite.test('copies, unsigned char', copies, 'unsigned char', np.uint8, (1, 1, 1))
    suite.test('uniform numbers', numbers)
    for add in (False, True):
        suite.test(f'gradients, add {add}', gradients, add)
