"""wrong.cu: each check can fail, and with the right message."""
import re

import numpy as np

import ptx_machine
from check import Device, Unknown, Wrong, address, encode, near, numbers

N = 64
ALL, HALF = np.ones(N, np.float32), np.where(np.arange(N) % 2, 1, -1).astype(np.float32)
AWAITED = 'shared memory that an asynchronous copy may yet write'
IN = 'thread \\(\\d+,0,0\\) of block \\(\\d,0,0\\)'

# kernel: the message, blocks, arguments. An argument is 'w', an output of N floats; 'scratch', room to read and write;
# or data
CAUGHT = {
    'behind_the_end': ('out of bounds of global memory: 4 bytes at byte 256 of buffer 0, which has 256 by thread \\(0,',
                       1, ['w', np.int32(N)]),
    'before_the_begin': (f'out of bounds of global memory: 4 bytes at byte -4 of buffer 1, which has 256 by {IN}', 1,
                         ['w', ALL]),
    'shared_behind_the_end': ('out of bounds of shared memory: 4 bytes at byte 256 of .*which has 256', 1,
                              ['w', np.int32(1)]),
    'misaligned': ('misaligned global access: 16 bytes at byte 4 of buffer 1', 1,
                   ['w', np.ones(4 * N + 4, np.float32)]),
    'shared_misaligned': ('misaligned shared access: 8 bytes at byte 4 of', 1, ['w', np.int32(1)]),
    'no_barrier': (f'race: shared memory at byte \\d+ of .* is read and written by {IN} and {IN}', 1, ['w', ALL]),
    'no_barrier_before_reuse': ('race: shared memory .* is written and read by', 1, ['w', np.ones(2 * N, np.float32)]),
    'all_write_one': ('race: shared memory .* is written by', 1, ['w']),
    'global_no_barrier': ('race: global memory .* is read and written by', 1, ['w', 'scratch']),
    'blocks_write_one': ('race: global memory .* is written by .* of block \\(0,.* and .* of block \\(1,', 2, ['w']),
    'blocks_read_another': ('race: global memory .* is read and written by', 2,
                            [np.ones(2 * N, np.float32), 'scratch']),
    'blocks_overwrite_read': ('race: global memory .* is written and read by', 2, ['w', np.ones(2 * N, np.float32)]),
    'uninitialised': ('read of uninitialised shared memory: 4 bytes at byte 256', 1, ['w']),
    'uninitialised_scratch': ('read of uninitialised global memory', 1, ['w', 'scratch']),
    'writes_its_input': ('write to global memory that is only for reading', 1, [('r', ALL)]),
    'writes_too_little': ('some of the output was never written', 1, ['w', np.int32(N - 1)]),
    'barrier_for_some': (f'barrier that not all threads reach: {IN} waits, {IN} is at line', 1, ['w', HALF]),
    'barrier_after_return': ('barrier that not all threads reach', 1, ['w', np.int32(N - 1)]),
    'shuffle_of_absent': ('lanes that the mask names never come', 1, ['w', ALL]),
    'shuffle_of_returned': ('lanes that the mask names never come', 1, ['w', ALL, np.int32(N - 1)]),
    'shuffle_from_unnamed': ('a shuffle from a lane that the mask does not name', 1, ['w', ALL]),
    'ballot_of_absent': ('lanes that the mask names never come', 1, ['w', HALF]),
    'divides_by_zero': ('division by zero', 1, ['w', np.ones(N, np.int32), np.int32(0)]),
    'unknown_instruction': ('unknown_instruction: line \\d+: unknown instruction: brev.b32', 1, ['w']),
    'product_for_some': ('lanes that the mask names never come', 1, ['w', HALF]),
    'matrix_without_barrier': ('race: shared memory', 1, ['w', np.int32(0)]),
    'copy_read_at_once': (f'{AWAITED}: 4 bytes at byte \\d+ of .* by {IN}', 1, ['w', ALL]),
    'copy_of_no_group': (AWAITED, 1, ['w', ALL]),
    'copy_of_later_group': (f'{AWAITED}: 4 bytes at byte 256 of .*, which has 512', 1, ['w', ALL]),
    'copy_without_barrier': ('race: shared memory .* is read and written by', 1, ['w', ALL]),
    'copy_awaited_behind_barrier': ('race: shared memory .* is read and written by', 1, ['w', ALL]),
    'copy_overwritten': (AWAITED, 1, ['w', ALL]),
    'copy_over_what_is_read': ('race: shared memory .* is written and read by', 1, ['w', ALL]),
    'copy_misaligned': ('misaligned global access: 16 bytes at byte 4 of buffer 1', 1,
                        ['w', np.ones(4 * N + 4, np.float32)]),
    'matrix_misaligned': ('misaligned shared access: 16 bytes', 1, ['w', np.int32(1)]),
}


def caught(suite, name, message, blocks, arguments):
    d, values, outputs = Device(), [], []
    for a in arguments:
        if isinstance(a, np.generic):
            values.append(a)
            continue
        access, data = a if isinstance(a, tuple) else ('rw', a)
        if isinstance(a, str):
            access, data = ('w', ALL) if a == 'w' else ('ws', np.ones(2 * N, np.float32))
        elif a is not arguments[0] and not name.startswith('blocks_'):
            access = 'r'
        at = d.buffer(data, access)
        values.append(address(at))
        outputs += [at] if access == 'w' else []
    try:
        suite.run(name, d, [blocks], [N], values)
        for at in outputs:
            d.get(at, np.float32, N)
    except (Wrong, Unknown) as why:
        assert re.search(message, str(why)), f'was caught as: {why}'
        return
    raise AssertionError('was not caught')


def product(suite, name, right):
    random, d = np.random.default_rng(1), Device()
    a, b = numbers(random, (16, 16), 'bf16'), numbers(random, (16, 8), 'bf16')
    c = d.buffer(np.zeros((16, 8), np.float32), 'w')
    arguments = [c, d.buffer(encode(a, 'bf16')), d.buffer(encode(b, 'bf16'))]
    suite.run(name, d, [1], [32], [address(x) for x in arguments])
    try:
        near(d.get(c, np.float32, (16, 8)), a @ b, np.abs(a) @ np.abs(b))
    except AssertionError:
        assert not right, 'is wrong'
        return
    assert right, 'was not caught'


def shuffle_of_half(suite):
    d, x = Device(), np.arange(N, dtype=np.float32)
    y = d.buffer(x, 'w')
    suite.run('shuffle_of_half', d, [1], [N], [address(y), address(d.buffer(x))])
    want = np.where(np.arange(N) % 32 < 16, x + x[np.arange(N) ^ 8], x)
    assert (d.get(y, np.float32, N) == want).all()


def copies(suite):
    d = Device()
    y = d.buffer(HALF, 'w')
    suite.run('copies', d, [1], [N], [address(y), address(d.buffer(HALF))])
    assert (d.get(y, np.float32, N) == np.where(HALF > 0, 2, 0)).all()


def fma(suite):
    """Checks the single rounding, on numbers whose sum in fp64 lies halfway between two floats."""
    blocks = ptx_machine.Blocks.__new__(ptx_machine.Blocks)
    blocks.n = 2
    e = np.float32(2.0**-30)
    got = blocks.fma_f32(np.array([1 + 2.0**-12] * 2, np.float32), np.array([1 + 2.0**-12] * 2, np.float32),
                         np.array([e**2, -e**2], np.float32), None)
    assert (got == np.array([1 + 2.0**-11 + 2.0**-23, 1 + 2.0**-11], np.float32)).all(), got


def tests(suite):
    for name, how in CAUGHT.items():
        suite.test(name, caught, name, *how)
    for name in ('product', 'product_a_in_wrong_order', 'product_b_in_wrong_order', 'product_b_not_transposed',
                 'product_c_in_wrong_rows'):
        suite.test(name, product, name, name == 'product')
    suite.test('shuffle_of_half', shuffle_of_half)
    suite.test('copies', copies)
    suite.test('fma', fma)
