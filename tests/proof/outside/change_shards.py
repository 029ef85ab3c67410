"""Changes to pieces, to collectives and their groups, and to homes."""

from mutate import an_ins, at, copy, drop, kind, move, partner
from program import ACCESS, COLLECTIVES, GATHERS, ROOTED, TEAM, Homes


def is_collective(x):
    return x.op in COLLECTIVES


def members(d, x):
    """Returns a collective's instructions in its group's order: all with x's name in lanes of x's group."""
    lane = d.ranks[x.rank].lanes[x.lane]
    stage = lambda y: y.s if y.op not in TEAM or d.teams is None else d.teams.first_of(y.s)
    label = lambda y: (y.op, stage(y), y.b, y.inst, y.peer)
    return [y for q in lane[1] if q < len(d.ranks) for y in d.ranks[q].ins
            if label(y) == label(x) and d.ranks[q].lanes[y.lane] == lane]


def some(d, x, rng):
    """Returns one member, or all."""
    return members(d, x) if rng.random() < 0.6 else [x]


def set_of(d, x):
    return d.homes[x.s] if d.homes and x.s < len(d.homes) else None


# ---- pieces ----

def pieces(x):
    return [i for i, a in enumerate(x.args) if a[3][1] > 1]


@kind
def piece_changed(d, rng):
    x = an_ins(d, rng, pieces)
    if not x:
        return False
    k = rng.choice(pieces(x))
    i, n = x.args[k][3]
    x.args[k] = (*x.args[k][:3], (rng.choice([j for j in range(n) if j != i]), n))
    return True


@kind
def pieces_of_another_number(d, rng):
    x = an_ins(d, rng, pieces)
    if not x:
        return False
    k = rng.choice(pieces(x))
    n = rng.choice((2, 3, 4, 6, 8, 4096))
    x.args[k] = (*x.args[k][:3], (rng.randrange(n), n))
    return True


@kind
def piece_made_whole(d, rng):
    x = an_ins(d, rng, pieces)
    if not x:
        return False
    k = rng.choice(pieces(x))
    x.args[k] = (*x.args[k][:3], (0, 1))
    return True


@kind
def whole_made_a_piece(d, rng):
    x = an_ins(d, rng, lambda x: any(d_even(d, x, a) for a in x.args))
    if not x:
        return False
    k = rng.choice([k for k, a in enumerate(x.args) if d_even(d, x, a)])
    x.args[k] = (*x.args[k][:3], (rng.randrange(2), 2))
    return True


def d_even(d, x, a):
    return a[3] == (0, 1) and any(b.name == a[2] and b.size % 2 == 0 and b.size for b in d.ranks[x.rank].bufs)


@kind
def pieces_exchanged(d, rng):
    """Swaps pieces of two instructions of a rank, so that two shards are fetched into each other's places, for
    example."""
    x = an_ins(d, rng, pieces)
    ys = [y for y in d.ranks[x.rank].ins if y is not x and pieces(y)] if x else []
    near = [y for y in ys if y.s == x.s] if x else []
    if not ys:
        return False
    y = rng.choice(near or ys)
    i, j = rng.choice(pieces(x)), rng.choice(pieces(y))
    x.args[i], y.args[j] = (*x.args[i][:3], y.args[j][3]), (*y.args[j][:3], x.args[i][3])
    return True


@kind
def pieces_rotated_everywhere(d, rng):
    """Rotates pieces of one set on all ranks: each updates, sums or fetches the next rank's piece."""
    x = an_ins(d, rng, pieces)
    if not x:
        return False
    ops = {y.op for rank in d.ranks for y in rank.ins if pieces(y)}
    if rng.random() < 0.7:
        ops = {rng.choice(sorted(ops)), x.op}
    for rank in d.ranks:
        for y in rank.ins:
            if y.s == x.s and y.op in ops:
                y.args = [(r, w, n, ((c[0] + 1) % c[1], c[1])) for r, w, n, c in y.args]
    return True


@kind
def shards_served_of_another_stage(d, rng):
    x = an_ins(d, rng, lambda x: x.op in ("SERVE", "COPY"))
    names = [b.name for b in d.ranks[x.rank].bufs if b.kind in ("wshard", "weight")] if x else []
    if len(names) < 2:
        return False
    x.args[0] = (*x.args[0][:2], rng.choice(names), x.args[0][3]) if x.args else None
    return bool(x.args)


@kind
def shard_from_elsewhere(d, rng):
    """Sends a FETCH, or a part of a gradient, to the other piece of its target; its sender may send another piece
    too."""
    x = an_ins(d, rng, lambda x: x.op in ("SEND_G", "FETCH") and pieces(x))
    y = partner(d, x)
    if not y:
        return False
    for u in (x, y) if rng.random() < 0.5 else (x,):
        u.args = [(r, w, n, ((c[0] + 1) % c[1], c[1])) for r, w, n, c in u.args]
    return True


# ---- collectives ----

@kind
def member_missing(d, rng):
    x = an_ins(d, rng, is_collective)
    if not x:
        return False
    drop(d, x)
    return True


@kind
def root_changed(d, rng):
    x = an_ins(d, rng, lambda x: x.op in ROOTED)
    if not x:
        return False
    group, all_ = d.ranks[x.rank].lanes[x.lane][1], some(d, x, rng)
    root = rng.choice([q for q in (group if rng.random() < 0.8 else range(d.workers)) if q != x.peer] or [0])
    old = x.peer
    for y in all_:
        y.peer = root
    both = [next((y for y in all_ if y.rank == q), None) for q in (old, root)]
    if None not in both and rng.random() < 0.6:  # and the operands with it
        u, v = both
        if x.op == "REDUCE":
            v.args, u.args = [*v.args, *[a for a in u.args if a[0] == "dw"]], [a for a in u.args if a[0] == "src"]
            return True
        u.args, v.args = [("w", *a[1:]) for a in u.args], [("src", *a[1:]) for a in v.args]
    return True


@kind
def operands_of_a_member_turned(d, rng):
    """Swaps source and target, or uses one for both."""
    x = an_ins(d, rng, lambda x: is_collective(x) and len(ACCESS[x.op]) > 1)
    if not x:
        return False
    roles = list(ACCESS[x.op])
    if len(x.args) == 2:
        a, b = x.args
        way = rng.randrange(3)
        x.args = [(a[0], False, *b[2:]), (b[0], b[1], *a[2:])] if way == 0 else \
            [a, (*b[:2], *a[2:])] if way == 1 else [(*a[:2], *b[2:]), b]
    elif x.args:
        x.args = [(roles[1 - roles.index(x.args[0][0])], *x.args[0][1:])]
    return True


@kind
def collective_of_another_stage(d, rng):
    """Lets one member, or all, gather or reduce tensors of another stage."""
    x = an_ins(d, rng, lambda x: is_collective(x) and x.args)
    if not x:
        return False
    s, k = rng.randrange(d.stages), rng.randrange(len(x.args))
    for y in some(d, x, rng):
        if k < len(y.args):
            old = y.args[k][2]
            new = old.replace(f"({x.s})", f"({s})")
            names = [b.name for b in d.ranks[y.rank].bufs]
            if new in names:
                y.args[k] = (*y.args[k][:2], new, y.args[k][3])
                y.frees = [new if f == old else f for f in y.frees] if rng.random() < 0.5 else y.frees
    return s != x.s


@kind
def targets_exchanged(d, rng):
    """Lets two collectives of one operation write to each other's targets, at one member or at all."""
    x = an_ins(d, rng, lambda x: is_collective(x) and x.args)
    ys = [y for y in d.ranks[x.rank].ins if y is not x and y.op == x.op and len(y.args) == len(x.args)] if x else []
    if not ys:
        return False
    y, way = rng.choice(ys), rng.choice((-1, -1, 0))
    for u, v in zip(*(some(d, x, rng), members(d, y)) if rng.random() < 0.5 else ([x], [y])):
        if u.args and v.args:
            u.args[way], v.args[way] = (*u.args[way][:2], *v.args[way][2:]), (*v.args[way][:2], *u.args[way][2:])
    return True


@kind
def collective_renamed(d, rng):
    x = an_ins(d, rng, is_collective)
    if not x:
        return False
    by_stage, s, k = x.inst is None or rng.random() < 0.4, rng.randrange(d.stages), rng.choice((0, 1, 2, 7, None))
    for y in some(d, x, rng):
        if by_stage:
            y.s = s
        else:
            y.inst = k
    return True


@kind
def collectives_renamed_for_each_other(d, rng):
    x = an_ins(d, rng, is_collective)
    ys = [y for y in d.ranks[x.rank].ins if y is not x and (y.op, y.lane) == (x.op, x.lane)] if x else []
    if not ys:
        return False
    y = rng.choice(ys)
    for u, v in zip(members(d, x), members(d, y)):
        u.s, u.inst, v.s, v.inst = v.s, v.inst, u.s, u.inst
    return True


@kind
def collective_of_another_operation(d, rng):
    x = an_ins(d, rng, is_collective)
    if not x:
        return False
    op = rng.choice(sorted(o for o in COLLECTIVES if (o in GATHERS, o in TEAM) == (x.op in GATHERS, x.op in TEAM)))
    root = rng.choice(d.ranks[x.rank].lanes[x.lane][1]) if op in ROOTED else None
    for y in some(d, x, rng):
        y.op, y.peer = op, root
        y.inst = None if op in ("ALL_REDUCE", "REDUCE") else y.inst
        y.args = [a for a in y.args if a[0] in ACCESS[op]]
        if root is not None:
            y.args = [a for a in y.args if (a[0] == "src") == (y.rank == root)] if op == "BROADCAST" else \
                [a for a in y.args if a[0] == "src" or y.rank == root]
    return op != x.op or op in ROOTED


@kind
def collective_again(d, rng):
    """Repeats a collective next to the first, at all members, under another instance or stage. A gather stays right."""
    x = an_ins(d, rng, is_collective)
    if not x:
        return False
    s = (x.s + 1) % d.stages
    for y in members(d, x):
        z = copy(y)
        if x.op in GATHERS or x.op == "REDUCE_SCATTER":
            z.inst = 5
        else:
            z.s = s
        y.frees = []
        ins = d.ranks[y.rank].ins
        ins.insert(ins.index(y) + 1, z)
    return True


@kind
def collectives_in_another_order(d, rng):
    """Swaps two neighbours of a lane, at all members or at one."""
    x = an_ins(d, rng, is_collective)
    lane = [y for y in d.ranks[x.rank].ins if y.lane == x.lane] if x else []
    if not x or x is lane[-1]:
        return False
    y = lane[lane.index(x) + 1]
    both = zip(members(d, x), members(d, y)) if rng.random() < 0.6 else [(x, y)]
    for u, v in both:
        ins = d.ranks[u.rank].ins
        if v.rank == u.rank and rng.random() < 0.5:
            move(d.ranks[u.rank], v, ins.index(u))
        elif v.rank == u.rank:
            move(d.ranks[u.rank], u, ins.index(v))
    return True


@kind
def collective_moved_at_all_members(d, rng):
    x = an_ins(d, rng, is_collective)
    if not x:
        return False
    by = rng.choice((-4, -2, -1, 1, 2, 4))
    for y in members(d, x):
        move(d.ranks[y.rank], y, at(d, y) + by)
        ins = d.ranks[y.rank].ins
        if rng.random() < 0.7:
            y.waited = [w for w in y.waited if ins.index(w) < ins.index(y)]
    return True


@kind
def collectives_wait_for_nothing(d, rng):
    x = an_ins(d, rng, lambda x: is_collective(x) and x.waited)
    if not x:
        return False
    for y in some(d, x, rng):
        y.waited = []
    return True


@kind
def nobody_waits_for_a_collective(d, rng):
    x = an_ins(d, rng, is_collective)
    if not x:
        return False
    for y in some(d, x, rng):
        for z in d.ranks[y.rank].ins:
            z.waited = [w for w in z.waited if w is not y]
    return True


@kind
def algorithm_changed(d, rng):
    x = an_ins(d, rng, is_collective)
    if not x:
        return False
    for y in some(d, x, rng):
        y.by = "tree" if y.by == "ring" else "ring"
    return True


@kind
def members_in_another_order(d, rng):
    """Reorders a group, on all ranks or on one. A reduction's sum stays the same, but not who gets which piece."""
    x = an_ins(d, rng, is_collective)
    if not x:
        return False
    kind_, old = d.ranks[x.rank].lanes[x.lane]
    new = list(old)
    rng.shuffle(new)
    for rank in d.ranks if rng.random() < 0.7 else [d.ranks[x.rank]]:
        rank.lanes = [(k, tuple(new) if (k, v) == (kind_, old) else v) for k, v in rank.lanes]
    return new != list(old)


@kind
def pieces_in_the_order_of_members(d, rng):
    """Reorders a group and its homes together; the rest stays."""
    if not d.homes:
        return False
    h = rng.choice(d.homes)
    old = rng.choice(h.lists)
    new = old[1:] + old[:1]
    for rank in d.ranks:
        rank.lanes = [(k, tuple(new) if list(v) == old else v) for k, v in rank.lanes]
    for g in d.homes:
        g.lists = [new if one == old else one for one in g.lists]
    return True


# ---- homes ----

@kind
def zero_changed(d, rng):
    if not d.homes:
        return False
    zero = rng.choice((0, 1, 2))
    for h in d.homes if rng.random() < 0.5 else [rng.choice(d.homes)]:
        h.zero = zero
    return True


@kind
def homes_exchanged(d, rng):
    """Swaps two ranks of a set's homes, or two lists."""
    if not d.homes:
        return False
    sets = d.homes if rng.random() < 0.4 else [rng.choice(d.homes)]
    way, seed = rng.randrange(3), rng.random()
    for h in sets:
        if way == 0:
            h.lists = h.lists[1:] + h.lists[:1]
        elif way == 1:
            h.lists = [one[1:] + one[:1] for one in h.lists]
        else:
            i, j = int(seed * len(h.lists)), int(seed * 7 * h.size) % h.size
            q = int(seed * 31) % d.workers
            if q not in [r for one in h.lists for r in one]:
                h.lists[i][j] = q
            else:
                h.lists[i][j], h.lists[0][0] = h.lists[0][0], h.lists[i][j]
    return True


@kind
def homes_regrouped(d, rng):
    """Splits the same ranks into more lists, or fewer."""
    if not d.homes:
        return False
    sets = d.homes if rng.random() < 0.6 else [rng.choice(d.homes)]
    wide = rng.random() < 0.5
    for h in sets:
        all_ = [r for one in h.lists for r in one]
        h.size = len(all_) if wide else 1
        h.lists = [all_[i:i + h.size] for i in range(0, len(all_), h.size)]
    return True


@kind
def home_left_out(d, rng):
    if not d.homes:
        return False
    h = rng.choice(d.homes)
    if len(h.lists) > 1 and rng.random() < 0.7:
        h.lists.pop(rng.randrange(len(h.lists)))
    elif h.size > 1:
        h.size -= 1
        h.lists = [one[:-1] for one in h.lists]
    return True


@kind
def homes_of_another_set(d, rng):
    if not d.homes:
        return False
    a, b = rng.choice(d.homes), rng.choice(d.homes)
    a.lists, a.size, a.zero = [list(one) for one in b.lists], b.size, b.zero
    return a is not b


@kind
def homes_said(d, rng):
    """Writes out the unsharded homes that the buffers imply, or drops the lines of homes."""
    if d.homes:
        d.homes = None
        return True
    homes = []
    for s in range(d.sets):
        h = Homes()
        h.size, h.zero = 1, 0
        h.lists = [[r] for r, rank in enumerate(d.ranks) if any(b.name == f"weight({s})" for b in rank.bufs)]
        if not h.lists and s not in d.bare:
            return False
        homes.append(h)
    d.homes = homes
    if rng.random() < 0.4:
        rng.choice(homes).zero = rng.choice((1, 2))
    return True


@kind
def gradient_kept_elsewhere(d, rng):
    """Replaces one of wgrad, gshard and gown by another, on one rank or all."""
    x = an_ins(d, rng, lambda x: x.op == "U" and x.args)
    if not x:
        return False
    old = x.args[0][2]
    new = rng.choice([f"{k}({x.s})" for k in ("wgrad", "gshard", "gown")])
    for rank in d.ranks if rng.random() < 0.6 else [d.ranks[x.rank]]:
        if any(b.name == old for b in rank.bufs) and not any(b.name == new for b in rank.bufs):
            for b in rank.bufs:
                if b.name == old:
                    b.name, b.kind = new, new.split("(")[0]
            for y in rank.ins:
                y.args = [(r, w, new if n == old else n, c) for r, w, n, c in y.args]
                y.frees = [new if f == old else f for f in y.frees]
    return new != old
