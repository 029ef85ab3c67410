"""Memory that checks every access: alignment, bounds, permission, initialisation, and races between threads.

Two accesses of different threads to the same bytes, at least one of them a write, race unless a barrier of their
block lies between them. If the threads are in different blocks, they always race. (PTX ISA, Memory Consistency
Model: bar.sync and the end of a kernel order accesses; shuffles, votes and mma do not.) Threads are numbered through
the blocks of a launch; an epoch is the number of barriers that a block has passed.
"""
import numpy as np

# state of a cell: it may be read; may be written; holds something; an asynchronous copy will write it
READ, WRITE, WRITTEN, AWAITED = 1, 2, 4, 8
SEVERAL = -2  # stands for a thread's or a block's number


class Wrong(Exception):
    """An access that kernels may not make."""


class Memory:
    """Memory of `size` bytes, in cells of 2, the smallest that kernels access."""

    def __init__(self, what, size):
        self.what, self.cells = what, (size + 1) // 2
        self.bytes = np.full(self.cells * 2, 0xA5, np.uint8)
        self.state = np.zeros(self.cells, np.uint8)

    def begin(self, cells):
        """Begins a launch, in which no thread has accessed the first `cells` cells yet."""
        self.writer = np.full(cells, -1, np.int32)
        self.written = np.full(cells, -1, np.int32)
        self.reader = np.full(cells, -1, np.int32)
        self.read = np.full(cells, -1, np.int32)
        self.block = np.full(cells, -1, np.int32)  # the block whose threads have read; only for memory that blocks share

    def _cells(self, at, size, need, thread, say):
        """Returns the cells of accesses at byte offsets, and their states, after all checks except races. need: the
        state that they must have."""
        def must(bad, why):
            if bad.any():
                i = int(np.flatnonzero(bad)[0])
                raise Wrong(f'{why}: {size} bytes at {say(int(at[i]))} by {say(None, int(thread[i]))}')
        must(at % size != 0, f'misaligned {self.what} access')
        must((at < 0) | (at + size > self.cells * 2), f'out of bounds of {self.what} memory')
        cell = (at[:, None] >> 1) + np.arange(size >> 1) if size > 2 else (at >> 1)[:, None]
        state = self.state[cell]
        if (state & (need | AWAITED) != need).any():
            must((state & AWAITED != 0).any(1), f'{self.what} memory that an asynchronous copy may yet write')
            must((state & (READ | WRITE) == 0).any(1), f'out of bounds of {self.what} memory')
            if need == WRITE:
                must((state & WRITE == 0).any(1), f'write to {self.what} memory that is only for reading')
            must((state & READ == 0).any(1), f'read of {self.what} memory that is not for reading')
            must((state & WRITTEN == 0).any(1), f'read of uninitialised {self.what} memory')
        return cell, state

    def _race(self, bad, cell, other, thread, words, say):
        if bad.any():
            i, j = (int(v[0]) for v in np.nonzero(bad))
            who = int(other[i, j])
            others = say(None, who) if who >= 0 else 'others'
            raise Wrong(f'race: {self.what} memory at {say(int(cell[i, j]) * 2)} is {words} by '
                        f'{say(None, int(thread[i]))} and {others} with no barrier between')

    def load(self, at, dtype, count, thread, epoch, block, say):
        """Loads count elements at each offset, as an array of len(at) x count. block: each thread's, or None if only
        one block has this memory."""
        size = dtype.itemsize * count
        cell, state = self._cells(at, size, READ | WRITTEN, thread, say)
        if (state & WRITE).any():
            self._reads(cell, thread[:, None], epoch[:, None], None if block is None else block[:, None], thread, say)
        return self.bytes.view(dtype)[(at // dtype.itemsize)[:, None] + np.arange(count)]

    def _reads(self, cell, t, e, b, thread, say):
        writer = self.writer[cell]
        bad = (writer != t) & (self.written[cell] == e)
        if b is not None:
            theirs = self._block_of(writer)
            bad = (writer >= 0) & (writer != t) & ((theirs != b) | (self.written[cell] == e))
            seen = self.block[cell]
            self.block[cell] = mine = np.where((seen == -1) | (seen == b), b, SEVERAL)
            self.block[cell[self.block[cell] != mine]] = SEVERAL
        self._race(bad, cell, writer, thread, 'read and written', say)
        mine = np.where((self.read[cell] == e) & (self.reader[cell] != t), SEVERAL, t)
        self.reader[cell] = mine
        self.read[cell] = e
        self.reader[cell[self.reader[cell] != t]] = SEVERAL

    def load_rows(self, at, thread, epoch, say):
        """ldmatrix: loads 8 elements of 2 bytes at each offset. They are for other lanes than the one that names the
        offset, so even that lane's own write is not visible to them yet."""
        cell, _ = self._cells(at, 16, READ | WRITTEN, thread, say)
        writer = self.writer[cell]
        self._race(self.written[cell] == epoch[:, None], cell, writer, thread, 'read and written', say)
        self.reader[cell], self.read[cell] = SEVERAL, epoch[:, None]
        return self.bytes.view(np.uint16)[cell]

    def begin_copy(self, at, size, thread, epoch, say):
        """Marks that the copy may write from now on. It races with whatever a write here would, and nobody may touch
        the bytes until it has landed."""
        cell = self._writes(at, size, thread, epoch, None, say)
        self.state[cell] |= AWAITED

    def land(self, at, values, thread, epoch, say):
        """Writes the bytes, since the copy's thread has waited for it. Other threads see them after a barrier."""
        cell = (at[:, None] >> 1) + np.arange(values.dtype.itemsize * values.shape[1] >> 1)
        self.state[cell] &= ~np.uint8(AWAITED)
        self.store(at, values, thread, epoch, None, say)

    def store(self, at, values, thread, epoch, block, say):
        """Stores values, an array of len(at) x count."""
        cell = self._writes(at, values.dtype.itemsize * values.shape[1], thread, epoch, block, say)
        self.state[cell] |= WRITTEN
        self.bytes.view(values.dtype)[(at // values.dtype.itemsize)[:, None] + np.arange(values.shape[1])] = values

    def _writes(self, at, size, thread, epoch, block, say):
        cell, _ = self._cells(at, size, WRITE, thread, say)
        t, e = thread[:, None], epoch[:, None]
        writer, reader = self.writer[cell], self.reader[cell]
        wrote, read = (self.written[cell] == e) & (writer != t), (self.read[cell] == e) & (reader != t)
        if block is not None:
            b, seen = block[:, None], self.block[cell]
            wrote = (writer >= 0) & (writer != t) & (wrote | (self._block_of(writer) != b))
            read = (seen != -1) & ((seen != b) | read)
        self._race(wrote, cell, writer, thread, 'written', say)
        self._race(read, cell, reader, thread, 'written and read', say)
        self.writer[cell] = t
        self._race(self.writer[cell] != t, cell, self.writer[cell], thread, 'written', say)
        self.written[cell] = e
        return cell

    def _block_of(self, thread):
        return thread // self.threads


class Device(Memory):
    """Global memory: buffers with gaps between them that no thread may touch."""
    BASE, GAP = 0x7F0000000000, 4096

    def __init__(self, size=1 << 22):
        super().__init__('global', size)
        self.top, self.threads, self.buffers = self.GAP, 1, []

    def buffer(self, array, access='r'):
        """Allocates a buffer and returns its address. access: 'r' copies the array, only to be read; 'w' makes room for
        one like it, uninitialised, only to be written; 'rw' copies it, for both; 'ws' makes uninitialised room that
        the kernel also reads back."""
        array = np.ascontiguousarray(array)
        at = self.top
        self.top = (at + array.nbytes + 2 * self.GAP) // 256 * 256
        if self.top > self.cells * 2:
            raise MemoryError('the device is too small')
        state = {'r': READ | WRITTEN, 'w': WRITE, 'rw': READ | WRITE | WRITTEN, 'ws': READ | WRITE}[access]
        self.state[at // 2:(at + array.nbytes) // 2] = state
        if state & WRITTEN:
            self.bytes[at:at + array.nbytes] = array.reshape(-1).view(np.uint8)
        self.buffers.append((at, array.nbytes))
        return self.BASE + at

    def get(self, address, dtype, shape):
        """Returns the contents, all of which must have been written."""
        at, n = address - self.BASE, int(np.prod(shape)) * np.dtype(dtype).itemsize
        if not (self.state[at // 2:(at + n) // 2] & WRITTEN).all():
            raise Wrong('some of the output was never written')
        return self.bytes[at:at + n].view(dtype).reshape(shape).copy()

    def say(self, at):
        for i, (begin, size) in enumerate(self.buffers):
            if begin - self.GAP // 2 <= at < begin + size + self.GAP // 2:
                return f'byte {at - begin} of buffer {i}, which has {size}'
        return f'address {at + self.BASE:#x}'
