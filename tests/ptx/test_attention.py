"""attention.cu: each kernel with heads that fill its padded size and with heads that do not."""
import numpy as np

from check import ceil, decode, encode, kind, near, numbers, without_barriers, Device, PRECISIONS

SIZES = (16, 32, 64, 80, 96, 128)
ROWS, THREADS = 64, 128


class Case:
    """The tensors of some sequences and heads, and what the layer makes of them, in float64."""

    def __init__(self, T, context, heads, dim):
        random, self.T, self.context, self.heads, self.dim = np.random.default_rng(dim), T, context, heads, dim
        self.sequences, self.width = 2, heads * dim
        self.rows, self.scale = self.sequences * context, float(np.float32(1) / np.sqrt(np.float32(dim)))
        self.x = numbers(random, (self.rows, 3 * self.width), T)
        self.dy = numbers(random, (self.rows, self.width), T)
        q, k, v = (self.split(part) for part in np.split(self.x, 3, 1))
        s = np.where(np.tri(context, dtype=bool), q @ k.swapaxes(-1, -2) * self.scale, -np.inf)
        top = s.max(-1, keepdims=True)
        self.lse = top + np.log(np.exp(s - top).sum(-1, keepdims=True))
        p = np.exp(s - self.lse)
        self.y, self.y_size = p @ v, p @ np.abs(v)
        g = self.split(self.dy)
        self.stored = decode(encode(self.join(self.y), T))  # the y that a backward finds
        self.d = (g * self.split(self.stored)).sum(-1, keepdims=True)
        dp, size = g @ v.swapaxes(-1, -2), np.abs(g) @ np.abs(v).swapaxes(-1, -2) + np.abs(self.d)
        ds, size = p * (dp - self.d) * self.scale, p * size * self.scale
        self.gradients = [ds @ k, ds.swapaxes(-1, -2) @ q, p.swapaxes(-1, -2) @ g]
        self.sizes = [size @ np.abs(k), size.swapaxes(-1, -2) @ np.abs(q), p.swapaxes(-1, -2) @ np.abs(g)]

    def split(self, x):
        """Rows x columns as sequences x heads x context x dim."""
        return x.reshape(self.sequences, self.context, self.heads, -1).transpose(0, 2, 1, 3)

    def join(self, x):
        return x.transpose(0, 2, 1, 3).reshape(self.rows, -1)

    def per_row(self, x):
        return self.join(x).astype(np.float32)

    def near(self, got, want, size, what):
        """bf16 rounds each p and ds, by 2^-9; in fp32 the exponents, up to 2^4, carry a few roundings into p."""
        near(got, self.join(want), self.join(size), what, 2.0**-8 if self.T != 'float' else 2.0**-18)

    def run(self, suite, d, name, D, buffers, shared):
        """buffers: x, dy, y, dx, lse and d."""
        arguments = b''.join([np.array(buffers, np.uint64).tobytes(),
                              np.array([self.context, self.heads, self.dim], np.int32).tobytes(),
                              np.float32(self.scale).tobytes()])
        grid = [self.sequences * self.heads, ceil(self.context, ROWS)]
        suite.run(f'{name}<{self.T}, {D}>', d, grid, [THREADS], [arguments], shared)


def tile(T, D):
    """Columns of a tile, those of one in the backward, and bytes of a row of one."""
    size = PRECISIONS[T]
    columns = 64 if size * D <= 128 else 32
    return columns, columns if size * D <= 256 else 16, (D + 16 // size) * size


def forward(suite, T, D, context, heads, dim):
    c, d = Case(T, context, heads, dim), Device()
    y, lse = d.buffer(encode(c.dy, T), 'w'), d.buffer(np.zeros((c.rows, heads), np.float32), 'w')
    columns, _, row = tile(T, D)
    c.run(suite, d, 'forward', D, [d.buffer(encode(c.x, T)), 0, y, 0, lse, 0], row * (ROWS + 2 * columns))
    near(d.get(lse, np.float32, (c.rows, heads)), c.join(c.lse), 16, 'lse')
    c.near(d.get(y, kind(T), (c.rows, c.width)), c.y, c.y_size, 'y')


def query_gradient(suite, T, D, context, heads, dim):
    c, d = Case(T, context, heads, dim), Device()
    _, columns, row = tile(T, D)
    sums = d.buffer(np.zeros((c.rows, heads), np.float32), 'w')
    room = np.zeros((c.rows, 3 * c.width), kind(T))
    dx = d.buffer(room, 'w')
    c.run(suite, d, 'query_gradient', D, [d.buffer(encode(c.x, T)), d.buffer(encode(c.dy, T)),
                                          d.buffer(encode(c.stored, T)), dx, d.buffer(c.per_row(c.lse)), sums],
          row * (2 * ROWS + 4 * columns))
    near(d.get(sums, np.float32, (c.rows, heads)), c.join(c.d), 16 * dim, 'D')
    written(d, dx, c, [True, False, False])
    c.near(got(d, dx, c)[0], c.gradients[0], c.sizes[0], 'dq')


def key_gradient(suite, T, D, context, heads, dim):
    c, d = Case(T, context, heads, dim), Device()
    _, columns, row = tile(T, D)
    dx = d.buffer(np.zeros((c.rows, 3 * c.width), kind(T)), 'w')
    c.run(suite, d, 'key_gradient', D, [d.buffer(encode(c.x, T)), d.buffer(encode(c.dy, T)),
                                        d.buffer(encode(c.stored, T)), dx, d.buffer(c.per_row(c.lse)),
                                        d.buffer(c.per_row(c.d))], row * (2 * ROWS + 4 * columns) + 4 * columns * 4)
    written(d, dx, c, [False, True, True])
    for i, what in ((1, 'dk'), (2, 'dv')):
        c.near(got(d, dx, c)[i], c.gradients[i], c.sizes[i], what)


def got(d, dx, c):
    at, n = dx - d.BASE, c.rows * 3 * c.width * PRECISIONS[c.T]
    return np.split(d.bytes[at:at + n].view(kind(c.T)).reshape(c.rows, -1), 3, 1)


def written(d, dx, c, which):
    """Of dq, dk and dv just those that the kernel owes."""
    at, size = (dx - d.BASE) // 2, PRECISIONS[c.T] // 2
    state = d.state[at:at + c.rows * 3 * c.width * size].reshape(c.rows, 3, -1) & 4 != 0
    for i, want in enumerate(which):
        assert (state[:, i] == want).all(), f'{("dq", "dk", "dv")[i]} is {"not all" if want else "also"} written'


def of_precision(suite, T, sizes):
    for D in sizes:
        for function in (forward, query_gradient, key_gradient):
            for context, heads, dim in ((70, 1, D), (33, 2, D - 5), (1, 1, D - 8)):
                what = f'{function.__name__}, {T}, {heads} heads of {dim}, {context} rows'
                suite.test(what, function, T, D, context, heads, dim)


# The order in which they start: the longest first.
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
        for function, barriers in ((forward, 2), (query_gradient, 3), (key_gradient, 1)):
            name = f'{function.__name__}<{T}, 16>'
            suite.test(f'{name} without barriers', without_barriers, name, barriers, function, T, 16, 70, 1, 16)
