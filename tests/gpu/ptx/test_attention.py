"""attention.cu: each kernel with heads that fill its padded size, and with heads that do not; also rope."""
import numpy as np

from check import address, ceil, decode, encode, kind, near, numbers, same, without_barriers, Device, PRECISIONS

SIZES = (16, 32, 64, 80, 96, 128)
ROWS, THREADS = 64, 128
SEGMENTS = 64  # room in a kernel


class Case:
    """The tensors of some sequences and heads, and attention's results for them, in float64.

    key_heads: each is read by equally many heads of queries. cuts: the keys come in segments that end there, each in
    memory of its own, and the queries begin at row `begin` of a sequence. Without cuts, everything lies in x, as in
    the layer. apart: rows from one sequence to the next; rows that lie between may not be touched."""

    def __init__(self, T, context, heads, dim, key_heads=None, cuts=None, begin=0, apart=0):
        self.apart = apart
        random, self.T, self.context, self.heads, self.dim = np.random.default_rng(dim), T, context, heads, dim
        self.key_heads, self.cuts, self.begin = key_heads or heads, cuts, begin
        self.sequences, self.width, self.key_width = 2, heads * dim, self.key_heads * dim
        self.rows, self.scale = self.sequences * (context - begin), float(np.float32(1) / np.sqrt(np.float32(dim)))
        self.x = numbers(random, (self.sequences * context, self.width + 2 * self.key_width), T)
        self.dy = numbers(random, (self.rows, self.width), T)
        q, k, v = (self.split(part) for part in np.split(self.x, [self.width, self.width + self.key_width], 1))
        k, v = (np.repeat(part, heads // self.key_heads, 1) for part in (k, v))
        q = q[:, :, begin:]
        s = np.where(np.tri(context, dtype=bool)[begin:], q @ k.swapaxes(-1, -2) * self.scale, -np.inf)
        top = s.max(-1, keepdims=True)
        self.lse = top + np.log(np.exp(s - top).sum(-1, keepdims=True))
        p = np.exp(s - self.lse)
        self.y, self.y_size = p @ v, p @ np.abs(v)
        g = self.split(self.dy)
        self.stored = decode(encode(self.join(self.y), T))  # the y that a backward finds
        self.d = (g * self.split(self.stored)).sum(-1, keepdims=True)
        dp, size = g @ v.swapaxes(-1, -2), np.abs(g) @ np.abs(v).swapaxes(-1, -2) + np.abs(self.d)
        ds, size = p * (dp - self.d) * self.scale, p * size * self.scale
        self.gradients = [ds @ k, self.grouped(ds.swapaxes(-1, -2) @ q), self.grouped(p.swapaxes(-1, -2) @ g)]
        self.sizes = [size @ np.abs(k), self.grouped(size.swapaxes(-1, -2) @ np.abs(q)),
                      self.grouped(p.swapaxes(-1, -2) @ np.abs(g))]

    def split(self, x):
        """Turns rows x columns into sequences x heads x rows x dim."""
        return x.reshape(self.sequences, len(x) // self.sequences, -1, self.dim).transpose(0, 2, 1, 3)

    def join(self, x):
        return x.transpose(0, 2, 1, 3).reshape(self.sequences * x.shape[2], -1)

    def grouped(self, x):
        """Sums a tensor of all heads over those that read the same keys."""
        return x.reshape(self.sequences, self.key_heads, -1, *x.shape[2:]).sum(2)

    def per_row(self, x):
        return self.join(x).astype(np.float32)

    def near(self, got, want, size, what):
        """Compares: bf16 rounds each p and ds, by 2^-9; in fp32 the exponents, up to 2^4, carry a few roundings into p."""
        near(got, self.join(want), self.join(size), what, 2.0**-8 if self.T != 'float' else 2.0**-18)

    def spread(self, x):
        """Moves the rows of sequences apart."""
        if not self.apart:
            return x
        out = np.zeros((self.sequences, self.apart, x.shape[1]), x.dtype)
        out[:, :len(x) // self.sequences] = x.reshape(self.sequences, -1, x.shape[1])
        return out.reshape(-1, x.shape[1])

    def together(self, x, rows):
        """Returns the first `rows` rows of each sequence, together again."""
        return x.reshape(self.sequences, -1, x.shape[1])[:, :rows].reshape(-1, x.shape[1])

    def buffer(self, d, x, access='r'):
        """Puts x, spread, into memory; what lies between sequences may be neither read nor written."""
        spread = self.spread(x)
        at, rows = d.buffer(spread, access), len(x) // self.sequences
        for s in range(self.sequences if self.apart else 0):
            row, size = x.shape[1] * x.dtype.itemsize // 2, (at - d.BASE) // 2
            d.state[size + (s * self.apart + rows) * row:size + (s + 1) * self.apart * row] = 0
        return at

    def read(self, d, at, dtype, rows, columns):
        """Returns what a kernel wrote, `rows` rows of each sequence, all of which it must have written."""
        if not self.apart:
            return d.get(at, dtype, (self.sequences * rows, columns))
        each = [d.get(at + s * self.apart * columns * np.dtype(dtype).itemsize, dtype, (rows, columns))
                for s in range(self.sequences)]
        return np.concatenate(each)

    def rows_of(self, x, first, end):
        return x.reshape(self.sequences, -1, x.shape[1])[:, first:end].reshape(-1, x.shape[1])

    def place(self, d, gradients):
        """Puts q, k and v into memory, and room for their gradients. Strides are in elements; the rest are addresses."""
        size, columns = PRECISIONS[self.T], self.x.shape[1]
        self.room = d.buffer(encode(self.x, self.T), 'w') if gradients and self.cuts is None else 0
        if self.cuts is None:
            self.q, self.q_stride, self.dq = d.buffer(encode(self.x, self.T)), columns, self.room
            k, v = self.q + self.width * size, self.q + (self.width + self.key_width) * size
            dk, dv = self.room + self.width * size, self.room + (self.width + self.key_width) * size
            self.segments = [(k, v, dk, dv, columns, columns, 0, self.context)]
            return
        q = self.rows_of(self.x[:, :self.width], self.begin, None)
        self.q, self.q_stride = self.buffer(d, encode(q, self.T)), self.width
        self.dq = self.buffer(d, encode(self.dy, self.T), 'w') if gradients else 0
        self.segments, first = [], 0
        for end in self.cuts:
            kv = encode(self.rows_of(self.x[:, self.width:], first, end), self.T)
            at, to = self.buffer(d, kv), self.buffer(d, kv, 'w') if gradients else 0
            half = self.key_width * size
            self.segments.append((at, at + half, to, to + half, kv.shape[1], kv.shape[1], first, end - first))
            first = end

    def run(self, suite, d, name, D, y, dy, lse, sums, shared):
        """Runs a kernel. Its parameter is struct attention: struct attend, the scale, and the segments
        (runtime/layers/attend.h)."""
        backward = name != 'forward'
        pointers = [self.q, dy, y, self.dq if backward else 0, lse, sums]
        integers = [self.q_stride, self.width, self.q_stride, self.sequences, self.begin, self.context - self.begin,
                    self.heads, self.key_heads, self.dim, len(self.segments), self.apart]
        parameter = np.array(pointers, np.uint64).tobytes() + np.array(integers, np.int32).tobytes() + bytes(4 + 8)
        parameter += np.float32(self.scale).tobytes() + bytes(4)
        for s in self.segments:
            parameter += np.array(s[:4], np.uint64).tobytes() + np.array(s[4:], np.int32).tobytes() + bytes(8)
        parameter += bytes(56 * (SEGMENTS - len(self.segments)))
        grid = [self.sequences * self.heads, ceil(self.context - self.begin, ROWS)]
        if name == 'key_gradient':
            grid = [self.sequences * self.key_heads, ceil(max(s[7] for s in self.segments), ROWS), len(self.segments)]
        suite.run(f'{name}<{self.T}, {D}>', d, grid, [THREADS], [parameter], shared)

    def got(self, d):
        """Returns dq, dk and dv."""
        def read(at, rows, columns):
            at, n = at - d.BASE, len(self.spread(np.empty((rows, columns), np.int8))) * columns * PRECISIONS[self.T]
            return self.together(d.bytes[at:at + n].view(kind(self.T)).reshape(-1, columns), rows // self.sequences)
        if self.cuts is None:
            return np.split(read(self.dq, *self.x.shape), [self.width, self.width + self.key_width], 1)
        parts = [read(s[2], self.sequences * s[7], 2 * self.key_width).reshape(self.sequences, s[7], -1)
                 for s in self.segments]
        both = np.concatenate(parts, 1).reshape(-1, 2 * self.key_width)
        return [read(self.dq, self.rows, self.width), *np.split(both, 2, 1)]


def tile(T, D):
    """Returns a tile's columns, a backward tile's columns, and the bytes of a tile's row."""
    size = PRECISIONS[T]
    columns = 64 if size * D <= 128 else 32
    return columns, columns if size * D <= 256 else 16, (D + 16 // size) * size


def forward(suite, T, D, *shape):
    c, d = Case(T, *shape), Device()
    c.place(d, False)
    y, lse = c.buffer(d, encode(c.dy, T), 'w'), c.buffer(d, np.zeros((c.rows, c.heads), np.float32), 'w')
    columns, _, row = tile(T, D)
    c.run(suite, d, 'forward', D, y, 0, lse, 0, row * (ROWS + 2 * columns))
    rows = c.rows // c.sequences
    near(c.read(d, lse, np.float32, rows, c.heads), c.join(c.lse), 16, 'lse')
    c.near(c.read(d, y, kind(T), rows, c.width), c.y, c.y_size, 'y')


def query_gradient(suite, T, D, *shape):
    c, d = Case(T, *shape), Device()
    c.place(d, True)
    _, columns, row = tile(T, D)
    sums = c.buffer(d, np.zeros((c.rows, c.heads), np.float32), 'w')
    c.run(suite, d, 'query_gradient', D, c.buffer(d, encode(c.stored, T)), c.buffer(d, encode(c.dy, T)),
          c.buffer(d, c.per_row(c.lse)), sums, row * (2 * ROWS + 4 * columns))
    near(c.read(d, sums, np.float32, c.rows // c.sequences, c.heads), c.join(c.d), 16 * c.dim, 'D')
    written(d, c, [True, False, False])
    c.near(c.got(d)[0], c.gradients[0], c.sizes[0], 'dq')


def key_gradient(suite, T, D, *shape):
    c, d = Case(T, *shape), Device()
    c.place(d, True)
    _, columns, row = tile(T, D)
    c.run(suite, d, 'key_gradient', D, c.buffer(d, encode(c.stored, T)), c.buffer(d, encode(c.dy, T)),
          c.buffer(d, c.per_row(c.lse)), c.buffer(d, c.per_row(c.d)), row * (2 * ROWS + 4 * columns) + 4 * columns * 4)
    written(d, c, [False, True, True])
    for i, what in ((1, 'dk'), (2, 'dv')):
        c.near(c.got(d)[i], c.gradients[i], c.sizes[i], what)


def written(d, c, which):
    """Asserts that a kernel wrote exactly its own ones of dq, dk and dv, if all lie in one buffer."""
    if c.cuts is not None:
        return
    at, size = (c.dq - d.BASE) // 2, PRECISIONS[c.T] // 2
    state = d.state[at:at + c.x.size * size].reshape(len(c.x), -1) & 4 != 0
    for i, part in enumerate(np.split(state, [c.width * size, (c.width + c.key_width) * size], 1)):
        assert (part == which[i]).all(), f'{("dq", "dk", "dv")[i]} is {"not all" if which[i] else "also"} written'


def rotate(suite, T, rows, positions, heads, dim, spare, back):
    """Rotates the heads of a row; `spare` more columns stay as they are. positions: a sequence has `length` rows, of
    which the first `chunk` begin at `first`, the others at `second`; row 0 is number `begin` of them."""
    random, d = np.random.default_rng(dim), Device()
    x = numbers(random, (rows, heads * dim + spare), T)
    at, half = d.buffer(encode(x, T), 'rw'), dim // 2
    powers = 10000.0 ** (-2 * np.arange(half) / dim)
    turns = np.zeros(64)
    turns[:half] = powers / (2 * np.pi)
    suite.run(f'rotate<{T}>', d, [min(rows, 2)], [THREADS],
              [address(at), *(np.int32(n) for n in (rows, x.shape[1], heads, dim)),
               np.array(positions, np.int32).tobytes(), turns.tobytes(), np.bool_(back)])
    length, chunk, first, second, begin = positions
    place = (begin + np.arange(rows)) % length
    place = np.where(place < chunk, first + place, second + place - chunk)
    angle = place[:, None] * powers * (-1 if back else 1)
    pairs = x[:, :heads * dim].reshape(rows, heads, 2, half).transpose(1, 2, 0, 3)
    left, right = pairs[:, 0], pairs[:, 1]
    turned = np.stack((left * np.cos(angle) - right * np.sin(angle), right * np.cos(angle) + left * np.sin(angle)), 1)
    want = np.hstack((turned.transpose(2, 0, 1, 3).reshape(rows, -1), x[:, heads * dim:]))
    near(d.get(at, kind(T), x.shape), want, 4)


def copy_rows(suite, T, V, rows, n):
    """Copies keys and values from between other columns to separate places, or back."""
    random, d = np.random.default_rng(n), Device()
    for spread in (False, True):
        wide_rows, packed = (numbers(random, (rows, k), T) for k in (4 * n, n))
        strips, wanted = b'', []
        for column in (n, 2 * n):
            part = (wide_rows, 4 * n, column), (packed, n, 0)
            (x, x_stride, x_column), (to, to_stride, to_column) = part[::-1] if spread else part
            at, room = d.buffer(encode(x, T)), d.buffer(encode(to, T), 'w')
            size = PRECISIONS[T]
            strips += np.array([room + to_column * size, at + x_column * size], np.uint64).tobytes()
            strips += np.array([to_stride, x_stride, n, 0], np.int32).tobytes()
            wanted.append((room, to_stride, to_column, encode(x, T)[:, x_column:x_column + n]))
        suite.run(f'copy_rows<{T}, {V}>', d, [ceil(rows * (n // V), THREADS), 2], [THREADS],
                  [strips + bytes(32), np.int32(rows)])
        for room, stride, column, want in wanted:
            begin, size = room - d.BASE, PRECISIONS[T]
            part = slice(column * size, (column + n) * size)
            made = d.bytes[begin:begin + rows * stride * size].reshape(rows, -1)[:, part]
            same(np.ascontiguousarray(made).view(kind(T)), want)


def of_precision(suite, T, sizes):
    for D in sizes:
        for function in (forward, query_gradient, key_gradient):
            for context, heads, dim in ((70, 1, D), (33, 2, D - 5), (1, 1, D - 8)):
                what = f'{function.__name__}, {T}, {heads} heads of {dim}, {context} rows'
                suite.test(what, function, T, D, context, heads, dim)
            what = f'{function.__name__}, {T}, 2 heads of {D} that share keys, 70 rows from 5 on, in segments'
            suite.test(what, function, T, D, 70, 2, D, 1, [3, 68, 70], 5)
            suite.test(what + ', sequences apart', function, T, D, 70, 2, D, 1, [20, 40, 60, 70], 21, 73)


# In starting order: the longest first.
PARTS = ['fp32_128', 'fp32_96', 'bf16_128', 'fp32_80', 'fp32_64', 'bf16_80', 'small']


def fp32_128(suite):
    of_precision(suite, 'float', [128])


def fp32_96(suite):
    of_precision(suite, 'float', [96])


def fp32_80(suite):
    of_precision(suite, 'float', [80])


def fp32_64(suite):
    of_precision(suite, 'float', [64])


def bf16_128(suite):
    of_precision(suite, '__nv_bfloat16', [128, 96])


def bf16_80(suite):
    of_precision(suite, '__nv_bfloat16', [80, 64])


def small(suite):
    for T in PRECISIONS:
        of_precision(suite, T, [16, 32])
        for dim in (2, 6, 128):
            for back in (False, True):
                suite.test(f'rotate, {T}, {dim}, back {back}', rotate, T, 9, (5, 5, 0, 0, 0), 3, dim, 4, back)
                suite.test(f'rotate of a slice, {T}, {dim}, back {back}', rotate, T, 9, (3, 3, 70, 0, 0), 3, dim, 4, back)
                suite.test(f'rotate chunks, {T}, {dim}, back {back}', rotate, T, 9, (4, 2, 2, 8, 0), 3, dim, 4, back)
        for V, n in ((16 // PRECISIONS[T], 24), (1, 7)):
            suite.test(f'copy_rows, {T}, {n} columns', copy_rows, T, V, 37, n)
        name = f'rotate<{T}>'
        suite.test(f'{name} without barriers', without_barriers, name, 2, rotate, T, 9, (5, 5, 0, 0, 0), 3, 128, 4, False)
        for function, barriers in ((forward, 2), (query_gradient, 3), (key_gradient, 1)):
            name = f'{function.__name__}<{T}, 16>'
            suite.test(f'{name} without barriers', without_barriers, name, barriers, function, T, 16, 70, 1, 16)
