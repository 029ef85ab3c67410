"""team_attention.cu: copies into pieces, one for each member of a team, and out of them."""
import numpy as np

from check import address, ceil, encode, kind, numbers, same, Device, PRECISIONS

THREADS = 256


def rows_of(member, members, rows, context):
    """Returns a member's rows of a microbatch: a run; or with context, of each sequence's 2 members chunks, chunk
    `member` and the one equally far from the end."""
    if not context:
        return np.arange(member * rows, (member + 1) * rows)
    sequences, chunk = rows * members // context, context // members // 2
    chunks = np.arange(sequences * context).reshape(sequences, 2 * members, chunk)
    return chunks[:, [member, 2 * members - 1 - member]].reshape(-1)


def columns_of(member, members, columns, group):
    """Returns a member's columns: a part of each group, or without groups all `columns`."""
    if not group:
        return np.arange(columns)
    begin, out = 0, []
    for width in group:
        out += range(begin + member * width // members, begin + (member + 1) * width // members)
        begin += width
    return np.array(out)


def move(suite, T, V, into, members, rows, columns, stride, gap, by_rows, context, group):
    """group: the widths of the tensor's column groups, or empty; gap: elements from the end of a piece to the next one."""
    random, d, size = np.random.default_rng(members), Device(), PRECISIONS[T]
    all_rows, apart = rows * (members if by_rows else 1), rows * columns + gap
    tensor = encode(numbers(random, (all_rows, stride), T), T)
    pieces = encode(numbers(random, (members, apart), T), T)
    at, to = d.buffer(tensor, 'r' if into else 'rw'), d.buffer(pieces, 'rw' if into else 'r')
    parameter = np.array([members, rows, columns, 0], np.int32).tobytes() + np.int64(apart).tobytes()
    parameter += np.int32(stride).tobytes() + np.array([by_rows, 0, 0, 0], np.uint8).tobytes()
    parameter += np.array([0, members, context, *group, 0, 0, 0][:6], np.int32).tobytes()
    suite.run(f'move<{T}, {V}>', d, [ceil(rows * columns // V, THREADS), members], [THREADS],
              [address(at), address(to), parameter, np.bool_(into)])
    for i in range(members):
        mine = np.ix_(rows_of(i, members, rows, context) if by_rows else np.arange(rows),
                      columns_of(i, members, columns, group))
        piece = pieces[i, :rows * columns].reshape(rows, columns)
        if into:
            piece[:] = tensor[mine]
        else:
            tensor[mine] = piece
    same(d.get(at, kind(T), tensor.shape), tensor, 'the tensor')
    same(d.get(to, kind(T), pieces.shape), pieces, 'the pieces')


def tests(suite):
    for T in PRECISIONS:
        V = 16 // PRECISIONS[T]
        for into in (True, False):
            for v in (1, V):
                def test(what, *arguments):
                    suite.test(f'move, {T}, {v} at once, into {into}: {what}', move, T, v, into, *arguments)
                test('one piece of some columns', 1, 37, 3 * v, 8 * v, 0, False, 0, ())
                test('heads', 3, 10, 5 * v, 15 * v, 2 * V, False, 0, (9 * v, 3 * v, 3 * v))
                test('one group', 2, 6, 24 * v, 48 * v, 0, False, 0, (48 * v,))
                test('runs of rows', 3, 7, 5 * v, 5 * v, V, True, 0, ())
                test('two chunks of each sequence', 3, 12, 2 * v, 2 * v, 0, True, 18, ())
                test('of four members', 4, 20, 2 * v, 2 * v, V, True, 40, ())
