"""Runs a kernel: all threads of some blocks in step, each with its own program counter.

Of the threads that can go on, the ones at the lowest address do (any order is allowed: PTX ISA, "Independent Thread
Scheduling"), so that they converge again after a branch. At a barrier a thread waits for all of its block, and at a
warp's instruction for the lanes that its mask names. A thread that never arrives is an error.
"""
from fractions import Fraction

import numpy as np

from ptx_code import KIND, STOPS, TOGETHER, Writer
from ptx_memory import WRITE, READ, Memory, Wrong
from ptx_text import Unknown, aligned

RUNS, AT_BARRIER, AT_WARP, ENDED = range(4)
LANE = np.arange(32)
BATCH = 1 << 23  # registers at a time, over all threads
GUARD = 64  # bytes between shared variables, which no access may touch


def layout(kernel, dynamic):
    """Returns the shared variables' places, (offset, bytes) by name, and the bytes of all."""
    at, out = GUARD, {}
    for name, align, size in kernel.shared:
        at = aligned(at, max(align, 16))
        out[name] = (at, size)
        at += size + GUARD
    at = aligned(at, 128)
    if kernel.dynamic:
        out[kernel.dynamic] = (at, dynamic)
    return out, aligned(at + dynamic + GUARD, 256)


class Code:
    """A kernel as Python functions, made when they are first needed. Each runs from an instruction to the next that may
    separate threads, for all threads or for some."""

    def __init__(self, kernel, dynamic):
        self.kernel, (self.shared, self.shared_bytes) = kernel, layout(kernel, dynamic)
        self.writer = Writer(kernel, self.symbol)
        self.made, self.labels = {}, set(kernel.labels.values())

    def symbol(self, name):
        if name in self.kernel.params:
            return self.kernel.params[name][0]
        if name in self.shared:
            return self.shared[name][0]
        raise Unknown(f'{self.kernel.name}: {name} is no parameter and no shared variable')

    def segment(self, at, some):
        """Returns (function, index of the instruction after it)."""
        key = (at, some)
        if key not in self.made:
            lines, end, code = [], at, self.kernel.code
            while end < len(code) and code[end].op[0] not in STOPS and (end == at or end not in self.labels):
                if code[end].op[0] in TOGETHER and some:
                    if end == at:
                        lines += self.writer.write(code[end], True)
                        end += 1
                    break
                if code[end].op[0] in TOGETHER:
                    lines += [f'S.all_named({self.writer.members(code[end])}, {code[end].line})']
                lines += self.writer.write(code[end], some)
                end += 1
            space = {'np': np}
            text = 'def f(S, R, K, M):\n' + ''.join(f' {line}\n' for line in lines or ['pass'])
            exec(compile(text, f'{self.kernel.name}@{at}', 'exec'), space)
            self.made[key] = (space['f'], end)
        return self.made[key]


class Blocks:
    """Some blocks of a launch. first: the number of their first thread in the launch."""

    def __init__(self, code, device, grid, block, numbers, params):
        self.code, self.device, self.kernel, self.params = code, device, code.kernel, params
        self.threads, self.grid, self.dim = int(np.prod(block)), grid, block
        n = self.n = len(numbers) * self.threads
        inside = np.arange(n) % self.threads
        self.block = np.repeat(np.array(numbers, np.int64), self.threads)
        self.slot = np.arange(n) // self.threads
        self.thread = self.block * self.threads + inside
        tid = (inside % block[0], inside // block[0] % block[1], inside // (block[0] * block[1]))
        cta = (self.block % grid[0], self.block // grid[0] % grid[1], self.block // (grid[0] * grid[1]))
        self.registers = {'%laneid': inside % 32}
        for axis in range(3):
            for name, v in (('tid', tid[axis]), ('ctaid', cta[axis]), ('ntid', block[axis]), ('nctaid', grid[axis])):
                self.registers[f'%{name}.{"xyz"[axis]}'] = np.broadcast_to(v, n).astype(np.uint32)
        # no line writes to a register's array in place, so unwritten registers may share one
        begin = {k: np.full(n * np.dtype(KIND[k]).itemsize, 0xFF, np.uint8).view(KIND[k]) for k in KIND if k != 'pred'}
        begin['pred'] = np.zeros(n, bool)
        self.R = [begin[k] for k in code.kernel.registers.values()]
        self.shared = Memory('shared', code.shared_bytes * len(numbers))
        self.shared.begin(self.shared.cells)
        for begin, size in code.shared.values():
            for b in range(len(numbers)):
                at = b * code.shared_bytes + begin
                self.shared.state[at // 2:(at + size) // 2] = READ | WRITE
        self.pc, self.status = np.zeros(n, np.int64), np.zeros(n, np.int8)
        self.epoch, self.all = np.zeros(n, np.int32), np.arange(n)
        # asynchronous copies in flight: threads, places, values to be written, groups; and each thread's groups so far
        self.copies, self.groups = [], np.zeros(n, np.int64)

    # ---- the order of execution ----

    def run(self):
        code, kernel, K = self.code, self.kernel, self.code.writer.constants
        while True:
            running = self.status == RUNS
            if not running.any():
                if not self._release():
                    return
                continue
            at = int(self.pc[running].min())
            now = running & (self.pc == at)
            whole = bool(now.all())
            if at >= len(kernel.code):
                self.status[now] = ENDED
                continue
            i = kernel.code[at]
            if i.op[0] in STOPS:
                self._stop(i, at, now)
            elif i.op[0] in TOGETHER and not whole:
                now = self._gather(i, at, now)
                if now.any():
                    f, end = code.segment(at, True)
                    f(self, self.R, K, now)
                    self.pc[now], self.status[now] = end, RUNS
            else:
                f, end = code.segment(at, not whole)
                f(self, self.R, K, None if whole else now)
                self.pc[now] = end

    def _stop(self, i, at, now):
        taken = now
        if i.guard:
            p = self.R[self.code.writer.number[i.guard[0]]]
            taken = now & (~p if i.guard[1] else p)
        self.pc[now] = at + 1
        if i.op[0] == 'bra':
            self.pc[taken] = self.kernel.labels[i.operands[0][1]]
        elif i.op[0] in ('ret', 'exit'):
            self.status[taken] = ENDED
        elif i.op[:2] == ['bar', 'sync'] and i.operands == [('number', '0')]:
            self.status[taken] = AT_BARRIER
            self.pc[taken] = at
        else:
            raise Unknown(f'{self.kernel.name}: line {i.line}: unknown instruction: {i.text}')

    def _release(self):
        """Called when no thread can go on: opens the barriers where all threads of a block wait. Returns False if all
        have ended. (PTX ISA, "bar": bar.sync is barrier.sync.aligned, which all threads of a warp must execute, the
        same one; CUDA C++ Programming Guide, __syncthreads(): all threads of the block, or none.)"""
        status, pc = self.status.reshape(-1, self.threads), self.pc.reshape(-1, self.threads)
        for b in range(len(status)):
            if (status[b] == ENDED).all():
                continue
            stuck = np.flatnonzero(status[b] == AT_WARP)
            waits = np.flatnonzero(status[b] == AT_BARRIER)
            if len(stuck):
                i = self.kernel.code[pc[b, stuck[0]]]
                self.wrong(i.line, f'lanes that the mask names never come: {self.say(None, self._number(b, stuck[0]))} '
                                   'waits for them')
            elsewhere = np.flatnonzero((status[b] != AT_BARRIER) | (pc[b] != pc[b, waits[0]]))
            if len(elsewhere):
                i = self.kernel.code[pc[b, waits[0]]]
                where = self.kernel.code[min(pc[b, elsewhere[0]], len(self.kernel.code) - 1)].line
                self.wrong(i.line, f'barrier that not all threads reach: {self.say(None, self._number(b, waits[0]))} '
                                   f'waits, {self.say(None, self._number(b, elsewhere[0]))} is at line {where}')
        waiting = self.status == AT_BARRIER
        self.status[waiting] = RUNS
        self.pc[waiting] += 1
        self.epoch[waiting] += 1
        return bool(waiting.any())

    def _number(self, slot, inside):
        return int(self.thread[slot * self.threads + inside])

    def _gather(self, i, at, now):
        """Returns the threads at a warp's instruction whose mask is complete; the others wait. (PTX ISA, shfl.sync and
        vote.sync: membermask; with .aligned the whole warp.)"""
        if self.threads % 32:
            self.wrong(i.line, 'the last warp is not whole')
        here = now | (self.status == AT_WARP) & (self.pc == at)
        self.status[here] = AT_WARP
        names = {'S': self, 'R': self.R, 'K': self.code.writer.constants}
        members = np.broadcast_to(eval(self.code.writer.members(i), names), self.n).astype(np.uint64)
        bit = np.uint64(1) << (self.all % 32).astype(np.uint64)
        present = np.repeat((bit * here).reshape(-1, 32).sum(1, dtype=np.uint64), 32)
        self._check(i.line, here & (members & bit == 0), 'a lane that its own mask does not name')
        return here & (members & present == members)

    def _check(self, line, bad, why):
        if bad.any():
            self.wrong(line, f'{why}: {self.say(None, int(self.thread[np.flatnonzero(bad)[0]]))}')

    def all_named(self, members, line):
        if self.threads % 32:
            self.wrong(line, 'the last warp is not whole')
        bit = np.uint32(1) << (self.all % 32).astype(np.uint32)
        self._check(line, np.broadcast_to(members & bit == 0, self.n), 'a lane that its own mask does not name')

    # ---- errors ----

    def say(self, at, thread=None):
        if thread is None:
            slot, inside = divmod(at, self.code.shared_bytes)
            for name, (begin, size) in self.code.shared.items():
                if begin - GUARD // 2 <= inside < begin + size + GUARD // 2:
                    return f'byte {inside - begin} of {name}, which has {size}'
            return f'byte {inside} of shared memory'
        b, t = divmod(thread, self.threads)
        g, d = self.grid, self.dim
        return (f'thread ({t % d[0]},{t // d[0] % d[1]},{t // d[0] // d[1]}) of block '
                f'({b % g[0]},{b // g[0] % g[1]},{b // g[0] // g[1]})')

    def say_global(self, at, thread=None):
        return self.device.say(at) if thread is None else self.say(None, thread)

    def wrong(self, line, why):
        text = next((i.text for i in self.kernel.code if i.line == line), '')
        raise Wrong(f'{why} (line {line}: {text})')

    # ---- memory ----

    def _who(self, base, offset, mask):
        base = np.broadcast_to(base, self.n)
        if mask is None:
            return self.all, base.astype(np.int64) + offset
        which = np.flatnonzero(mask)
        return which, base[which].astype(np.int64) + offset

    def _spread(self, which, got):
        """Turns an array of len(which) x count into count arrays with an element for each thread."""
        if which is self.all:
            return got.T.copy()
        out = np.zeros((got.shape[1], self.n), got.dtype)
        out[:, which] = got.T
        return out

    def load_param(self, base, offset, dtype, count, mask, line):
        which, at = self._who(base, offset, mask)
        size = dtype.itemsize * count
        if (at < 0).any() or (at + size > len(self.params)).any() or (at % size).any():
            self.wrong(line, 'out of bounds of the parameters')
        got = self.params[at[:, None] + np.arange(size)].view(dtype)
        return self._spread(which, got)

    def load_global(self, base, offset, dtype, count, mask, line):
        which, at = self._who(base, offset, mask)
        try:
            got = self.device.load(at - self.device.BASE, dtype, count, self.thread[which], self.epoch[which],
                                   self.block[which], self.say_global)
        except Wrong as why:
            self.wrong(line, why)
        return self._spread(which, got)

    def store_global(self, base, offset, dtype, values, mask, line):
        which, at = self._who(base, offset, mask)
        values = np.stack([np.broadcast_to(v, self.n)[which] for v in values], 1)
        try:
            self.device.store(at - self.device.BASE, values, self.thread[which], self.epoch[which], self.block[which],
                              self.say_global)
        except Wrong as why:
            self.wrong(line, why)

    def _inside(self, which, at, line):
        """Turns offsets in the shared memory of a thread's own block into offsets in the memory of all blocks here."""
        bad = (at < 0) | (at >= self.code.shared_bytes)
        if bad.any():
            t = int(self.thread[which[np.flatnonzero(bad)[0]]])
            self.wrong(line, f'out of bounds of shared memory: byte {int(at[bad][0])} by {self.say(None, t)}')
        return at + self.slot[which] * self.code.shared_bytes

    def load_shared(self, base, offset, dtype, count, mask, line):
        which, at = self._who(base, offset, mask)
        at = self._inside(which, at, line)
        try:
            got = self.shared.load(at, dtype, count, self.thread[which], self.epoch[which], None, self.say)
        except Wrong as why:
            self.wrong(line, why)
        return self._spread(which, got)

    def store_shared(self, base, offset, dtype, values, mask, line):
        which, at = self._who(base, offset, mask)
        at = self._inside(which, at, line)
        values = np.stack([np.broadcast_to(v, self.n)[which] for v in values], 1)
        try:
            self.shared.store(at, values, self.thread[which], self.epoch[which], None, self.say)
        except Wrong as why:
            self.wrong(line, why)

    # ---- asynchronous copies ----

    def copy(self, to, to_offset, of, of_offset, size, mask, line):
        """Begins a copy. PTX ISA, "cp.async": it reads and writes at some time before its thread has waited for it. So
        its source must be there now, and nobody may touch its destination until then. The check misses a thread that
        later overwrites the source."""
        which, at = self._who(to, to_offset, mask)
        at = self._inside(which, at, line)
        _, source = self._who(of, of_offset, mask)
        try:
            got = self.device.load(source - self.device.BASE, np.dtype(np.uint32), size // 4, self.thread[which],
                                   self.epoch[which], self.block[which], self.say_global)
            self.shared.begin_copy(at, size, self.thread[which], self.epoch[which], self.say)
        except Wrong as why:
            self.wrong(line, why)
        self.copies.append((which, at, got, self.groups[which]))

    def commit(self, mask):
        """ "cp.async.commit_group": makes a group of a thread's copies since its last group."""
        self.groups = self.groups + (1 if mask is None else mask)

    def wait(self, prior, mask, line):
        """ "cp.async.wait_group": completes all groups but the thread's last `prior` ones."""
        left = []
        for which, at, values, group in self.copies:
            done = group + prior < self.groups[which]
            if mask is not None:
                done &= mask[which]
            if done.any():
                t = which[done]
                try:
                    self.shared.land(at[done], values[done], self.thread[t], self.epoch[t], self.say)
                except Wrong as why:
                    self.wrong(line, why)
            if not done.all():
                left.append((which[~done], at[~done], values[~done], group[~done]))
        self.copies = left

    # ---- instructions of a warp ----

    def _warps(self, x):
        return np.broadcast_to(x, self.n).reshape(-1, 32)

    def shuffle(self, mode, x, b, c, members, mask, line):
        """PTX ISA, shfl.sync: c holds the largest lane in bits 4:0 and the segments in bits 12:8. A source lane outside
        the mask gives an undefined value."""
        x, b, c = self._warps(x), self._warps(b).astype(np.int64) & 31, self._warps(c).astype(np.int64)
        segment, clamp = c >> 8 & 31, c & 31
        most, least = (LANE & segment) | (clamp & ~segment), LANE & segment
        lane = {'idx': least | (b & ~segment), 'bfly': LANE ^ b, 'up': LANE - b, 'down': LANE + b}[mode]
        valid = lane >= most if mode == 'up' else lane <= most
        lane = np.where(valid, lane, LANE)
        named = (self._warps(members).astype(np.int64) >> lane & 1).astype(bool).reshape(-1)
        self._check(line, ~named if mask is None else ~named & mask,
                    'a shuffle from a lane that the mask does not name')
        return np.take_along_axis(x, lane, 1).reshape(-1), valid.reshape(-1)

    def ballot(self, p, members, mask, line):
        p = self._warps(p if mask is None else p & mask)
        votes = (p.astype(np.uint64) << LANE.astype(np.uint64)).sum(1, dtype=np.uint64).astype(np.uint32)
        return np.repeat(votes, 32) & members

    def load_matrix(self, base, offset, transposed, mask, line):
        """PTX ISA, ldmatrix .m8n8.x4.b16: lanes 8m .. 8m + 7 name the rows of matrix m, 16 bytes each. Lane l gets
        elements 2 (l % 4) and the next of row l / 4; with .trans, of the transposed matrix."""
        which, at = self._who(base, offset, mask)
        at = self._inside(which, at, line)
        try:
            rows = self.shared.load_rows(at, self.thread[which], self.epoch[which], self.say)
        except Wrong as why:
            self.wrong(line, why)
        matrix = rows.reshape(-1, 4, 8, 8)
        if transposed:
            matrix = matrix.swapaxes(2, 3)
        got = np.ascontiguousarray(matrix).view(np.uint32).reshape(-1, 4, 32)  # 8 rows with 4 pairs each
        return self._spread(which, got.swapaxes(1, 2).reshape(-1, 4))

    def mma(self, a, b, c, mask, line):
        """PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type". Let g = lane / 4 and t = lane % 4.
        Element i of a is in row g, or g + 8 where i is 2, 3, 6 or 7, and in column 2t + i % 2, plus 8 from i = 4 on.
        Element i of b is in row 2t + i % 2, plus 8 from i = 2 on, and in column g. Element i of c is in row g, plus
        8 from i = 2 on, and in column 2t + i % 2."""
        warps = slice(None) if mask is None else np.flatnonzero(self._warps(mask)[:, 0])
        g, t = LANE // 4, LANE % 4

        def halves(registers):
            pair = np.stack([np.ascontiguousarray(self._warps(r)[warps]) for r in registers], 2)
            return (pair.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
        x, y = halves(a), halves(b)
        A, B = np.zeros((len(x), 16, 16)), np.zeros((len(x), 16, 8))
        for i in range(8):
            A[:, g + (8 if i in (2, 3, 6, 7) else 0), 2 * t + i % 2 + (8 if i >= 4 else 0)] = x[:, :, i]
        for i in range(4):
            B[:, 2 * t + i % 2 + (8 if i >= 2 else 0), g] = y[:, :, i]
        product = A @ B  # exact products, summed in fp64; a device sums in fp32, in its own order
        out = np.zeros((4, self.n // 32, 32), np.float32)
        for i in range(4):
            out[i, warps] = self._warps(c[i])[warps] + product[:, g + (8 if i >= 2 else 0), 2 * t + i % 2]
        return out.reshape(4, -1)

    # ---- values ----

    def special(self, name, kind):
        if name not in self.registers:
            raise Unknown(f'{self.kernel.name}: register {name}')
        return self.registers[name].astype(kind)

    def array(self, x, kind):
        return np.full(self.n, x, kind) if np.ndim(x) == 0 else np.ascontiguousarray(x)

    def pair(self, low, high, kind):
        half = {4: np.uint16, 8: np.uint32}[np.dtype(kind).itemsize]
        out = np.empty((self.n, 2), half)
        out[:, 0], out[:, 1] = low, high
        return out.view(kind).reshape(-1)

    def wide(self, x, kind):
        return x.astype(kind)

    def fma_f32(self, a, b, c, mask):
        """Rounds once. The product is exact in fp64. If the sum, rounded to fp64, lies halfway between two floats, the
        part it lost decides."""
        p, c = np.multiply(a, b, dtype=np.float64), np.asarray(c, np.float64)
        s = p + c
        tie = np.flatnonzero(s.view(np.uint64) & np.uint64(0x1FFFFFFF) == np.uint64(0x10000000))
        if len(tie):
            q, d, t = p[tie], np.broadcast_to(c, self.n)[tie], s[tie]
            v = t - q
            lost = (q - (t - v)) + (d - v)
            s[tie] = np.where(lost != 0, np.nextafter(t, np.where(lost > 0, np.inf, -np.inf)), t)
        return s.astype(np.float32)

    def fma_f64(self, a, b, c, mask):
        a, b, c = (np.broadcast_to(v, self.n) for v in (a, b, c))
        out = a * b + c
        for i in np.flatnonzero(np.isfinite(out) if mask is None else mask & np.isfinite(out)):
            out[i] = float(Fraction(float(a[i])) * Fraction(float(b[i])) + Fraction(float(c[i])))
        return out

    def div_approx(self, x, y):
        """PTX ISA, div.approx.f32: 0 if |y| is above 2^126 and x finite."""
        q = (np.asarray(x, np.float64) / y).astype(np.float32)
        return np.where((np.abs(y) > np.float32(2.0**126)) & np.isfinite(x), np.float32(0) * q, q)

    def _divisor(self, y, mask, line):
        y = np.broadcast_to(y, self.n)
        self._check(line, y == 0 if mask is None else (y == 0) & mask, 'division by zero')
        return np.where(y == 0, y.dtype.type(1), y)

    def div(self, x, y, mask, line):
        y = self._divisor(y, mask, line)
        q = x // y
        return q + ((q < 0) & (q * y != x)).astype(q.dtype) if q.dtype.kind == 'i' else q

    def rem(self, x, y, mask, line):
        return np.fmod(x, self._divisor(y, mask, line))

    def shl(self, x, by):
        width = 8 * x.dtype.itemsize
        return np.where(by >= width, x.dtype.type(0), x << np.minimum(by, width - 1).astype(x.dtype))

    def shr(self, x, by):
        width = 8 * x.dtype.itemsize
        by_ = np.minimum(by, width - 1).astype(x.dtype)
        return x >> by_ if x.dtype.kind == 'i' else np.where(by >= width, x.dtype.type(0), x >> by_)

    def popc(self, x):
        x = x - (x >> np.uint32(1) & np.uint32(0x55555555))
        x = (x & np.uint32(0x33333333)) + (x >> np.uint32(2) & np.uint32(0x33333333))
        return ((x + (x >> np.uint32(4))) & np.uint32(0x0F0F0F0F)) * np.uint32(0x01010101) >> np.uint32(24)

    def bfi(self, a, b, at, length):
        """PTX ISA, bfi: inserts `length` bits of a into b, from bit `at` on."""
        kind = a.dtype.type
        all_ = int(np.iinfo(kind).max)
        mask = (((1 << int(length)) - 1) << int(at)) & all_
        return (b & kind(~mask & all_)) | ((a << kind(at)) & kind(mask))

    def to_bf16(self, x):
        """Rounds to nearest even; a NaN becomes 0x7fff."""
        u = np.ascontiguousarray(x).view(np.uint32).astype(np.uint64)
        r = ((u + np.uint64(0x7FFF) + (u >> np.uint64(16) & np.uint64(1))) >> np.uint64(16)).astype(np.uint16)
        return np.where(np.isnan(x), np.uint16(0x7FFF), r)


_codes = {}


def executed(kernel):
    """Returns how many of a kernel's instructions some thread has reached, and how many there are."""
    run = set()
    for code, of in _codes.values():
        for at, end in ((at, made[1]) for (at, _), made in code.made.items() if of is kernel):
            run.update(range(at, end))
    every = [n for n, i in enumerate(kernel.code) if i.op[0] not in STOPS]
    return len(run.intersection(every)), len(every)


def launch(kernel, device, grid, block, arguments, shared=0):
    """Runs all blocks of a grid. arguments: in order, numpy scalars or structured bytes, with the parameters' sizes.
    shared: bytes of dynamic shared memory."""
    grid, block = (tuple(v) + (1,) * (3 - len(v)) for v in (grid, block))
    params = np.zeros(kernel.params_bytes, np.uint8)
    assert len(arguments) == len(kernel.params), 'arguments'
    for value, (at, size) in zip(arguments, kernel.params.values()):
        raw = np.frombuffer(value if isinstance(value, bytes) else np.asarray(value).tobytes(), np.uint8)
        assert len(raw) == size, f'an argument of {len(raw)} bytes for a parameter of {size}'
        params[at:at + size] = raw
    key = (id(kernel), shared)
    kernel.parse()
    if key not in _codes:
        _codes[key] = (Code(kernel, shared), kernel)
    code, threads, blocks = _codes[key][0], int(np.prod(block)), int(np.prod(grid))
    device.begin(device.top // 2)
    device.threads = threads
    each = max(1, BATCH // (threads * (len(kernel.registers) + 64)))
    with np.errstate(all='ignore'):
        for first in range(0, blocks, each):
            Blocks(code, device, grid, block, range(first, min(first + each, blocks)), params).run()
