"""Makes wrong programs from right ones: one to three changes, of many kinds, to a program's text form.

KINDS are the changes, in change_*.py. Each takes a draft and a random generator, and returns whether it found a place;
a few change the text itself. They aim at programs that look right but are wrong, only in a rare order, only by value or
only by a name. They also aim at programs that look wrong but are right.
"""

import pickle

from program import RECV_OF, Ins, print_program, read

SEND_OF = {v: k for k, v in RECV_OF.items()}
KINDS, TEXT_KINDS = {}, {}


def kind(f):
    KINDS[f.__name__] = f
    return f


def text_kind(f):
    TEXT_KINDS[f.__name__] = f
    return f


class Draft:
    """A program to change: buffers and needs as lists, waits as instructions, labels made from parts."""


def draft(text):
    p, d = read(text), Draft()
    d.name = text.split(" ", 3)[2]
    d.workers, d.stages, d.batches, d.tied = p.workers, p.stages, p.batches, p.tied
    d.sets, d.bare, d.contributed = p.sets, p.bare, p.contributed
    d.slices, d.attends = p.slices, p.attends
    d.updates, d.period, d.homes = p.updates, p.period, p.homes
    d.needs_list = [(j, list(q)) for j, q in (p.needs or {}).items()]
    d.ranks, d.teams = p.ranks, p.teams
    for rank in d.ranks:
        rank.bufs = list(rank.bufs.values())
    return pickle.dumps(d)


def mutant(frozen, rng):
    """Returns a changed text, and the names of the changes."""
    d, done = pickle.loads(frozen), []
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3))):
        for _ in range(20):
            name = rng.choice(list(KINDS))
            if KINDS[name](d, rng):
                done.append(name)
                break
    text = print_program(d)
    if rng.random() < 0.03:
        name = rng.choice(list(TEXT_KINDS))
        text = TEXT_KINDS[name](text, rng)
        done.append(name)
    return text, done


# ---- choosing a place, and helpers of the changes ----

def a_rank(d, rng):
    return rng.choice(d.ranks)


def an_ins(d, rng, test=lambda x: True):
    all_ = [x for rank in d.ranks for x in rank.ins if test(x)]
    return rng.choice(all_) if all_ else None


def at(d, x):
    return d.ranks[x.rank].ins.index(x)


def partner(d, x):
    if x is None or x.op not in RECV_OF and x.op not in SEND_OF:
        return None
    op = RECV_OF.get(x.op) or SEND_OF[x.op]
    for y in d.ranks[x.peer].ins:
        if (y.op, y.s, y.b, y.inst, y.peer) == (op, x.s, x.b, x.inst, x.rank):
            return y
    return None


def a_buf(d, rng, test=lambda b: True):
    rank = a_rank(d, rng)
    bufs = [b for b in rank.bufs if test(b)]
    return (rank, rng.choice(bufs)) if bufs else (rank, None)


def buf(rank, name):
    return next(b for b in rank.bufs if b.name == name)


def drop(d, x):
    rank = d.ranks[x.rank]
    rank.ins.remove(x)
    for y in rank.ins:
        y.waited = [w for w in y.waited if w is not x]


def move(rank, x, to):
    rank.ins.remove(x)
    rank.ins.insert(max(0, min(to, len(rank.ins))), x)


def users(rank, name):
    return [x for x in rank.ins if any(a[2] == name for a in x.args)]


def fit_arenas(rank):
    ends = lambda there: max([0] + [b.off + b.size for b in rank.bufs if b.on_host() == there])
    rank.arena, rank.host = ends(False), ends(True)


def rename(rank, old, new, memory=True):
    for x in rank.ins:
        x.args = [(r, a, new if n == old else n, c) for r, a, n, c in x.args]
        x.frees = [new if n == old else n for n in x.frees]
    if memory:
        buf(rank, old).name = new
        for b in rank.bufs:
            b.grows = new if b.grows == old else b.grows


def has_waits(x):
    return x.waited


def copy(x):
    y = Ins()
    for slot in Ins.__slots__:
        if hasattr(x, slot):
            setattr(y, slot, getattr(x, slot))
    y.args, y.frees, y.waited = list(x.args), list(x.frees), list(x.waited)
    return y


def new_ins(rank, r, lane, op, s, b, inst, peer, args):
    x = Ins()
    x.op, x.s, x.b, x.inst, x.peer, x.args, x.lane, x.rank = op, s, b, inst, peer, args, lane, r
    x.waited, x.frees, x.by, x.part, x.version, x.section = [], [], None, (0, 1), None, 0
    return x
