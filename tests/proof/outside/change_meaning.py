"""Changes to the work: instructions, gradients, homes, tokens, needs."""

from mutate import a_buf, an_ins, at, buf, copy, drop, kind, move, new_ins, partner, rename
from program import ACCESS, COLLECTIVES, JOBS, SENDS

# ---- instructions ----

@kind
def instruction_dropped(d, rng):
    drop(d, an_ins(d, rng))
    return True


@kind
def message_dropped(d, rng):
    x = an_ins(d, rng, lambda x: x.op in SENDS)
    y = partner(d, x)
    if not y:
        return False
    drop(d, x)
    drop(d, y)
    return True


@kind
def instruction_again(d, rng):
    """Repeats an instruction under another microbatch, stage or instance."""
    x = an_ins(d, rng)
    y = copy(x)
    if y.inst is not None:
        y.inst += 1
    elif y.b is not None and rng.random() < 0.5:
        y.b = rng.randrange(d.batches)
    else:
        y.s = rng.randrange(d.stages)
    rank = d.ranks[x.rank]
    rank.ins.insert(rng.randint(at(d, x), len(rank.ins)), y)
    return True


@kind
def message_again(d, rng):
    """Repeats a message; the second is named for another microbatch or instance."""
    x = an_ins(d, rng, lambda x: x.op in SENDS)
    y = partner(d, x)
    if not y:
        return False
    u, v, frees = copy(x), copy(y), x.frees
    if x.inst is not None:
        u.inst = v.inst = x.inst + 1
    elif x.b is not None:
        u.b = v.b = (x.b + 1) % d.batches
    else:
        u.s = v.s = (x.s + 1) % d.stages
    x.frees = []
    ins = d.ranks[x.rank].ins
    ins.insert(ins.index(x) + 1, u)
    ins = d.ranks[y.rank].ins
    ins.insert(ins.index(y) + 1, v)
    return True


@kind
def order_message_added(d, rng):
    """Adds a token's message along an edge that has lanes, with a buffer at either end, or with none."""
    x = an_ins(d, rng, lambda x: x.op in SENDS)
    y = partner(d, x)
    if not y:
        return False
    s, b, k = rng.randrange(d.stages), rng.randrange(d.batches), rng.choice((0, 3, 9))
    for u, op, role in ((x, "SEND_T", "t"), (y, "RECV_T", "t")):
        rank = d.ranks[u.rank]
        z = new_ins(rank, u.rank, u.lane, op, s, b, k, u.peer, [])
        rank.ins.insert(rank.ins.index(u) + rng.choice((0, 1)), z)
        if rng.random() < 0.5:
            rng.choice(rank.ins).waited.append(z)
            rng.choice(rank.ins).waited.append(z)
    return True


@kind
def other_lane(d, rng):
    x = an_ins(d, rng)
    x.lane = rng.randrange(len(d.ranks[x.rank].lanes))
    return True


# ---- gradients and weights ----

def gradient_ops(x):
    return x.op in ("ADD", "TAKE", "SEND_G", "RECV_G", "ALL_REDUCE", "REDUCE_SCATTER", "ZERO")


def same(x, y):
    """Returns whether they are the same collective, perhaps in another group."""
    return (x.op, x.s, x.b, x.inst, x.peer) == (y.op, y.s, y.b, y.inst, y.peer)


@kind
def gradient_step_dropped(d, rng):
    x = an_ins(d, rng, gradient_ops)
    if not x:
        return False
    drop(d, x)
    return True


@kind
def collective_dropped_everywhere(d, rng):
    x = an_ins(d, rng, lambda x: x.op in COLLECTIVES)
    if not x:
        return False
    for rank in d.ranks:
        for y in [y for y in rank.ins if same(x, y)]:
            drop(d, y)
    return True


@kind
def part_added_twice(d, rng):
    x = an_ins(d, rng, lambda x: x.op == "ADD")
    if not x:
        return False
    others = [y for y in d.ranks[x.rank].ins if y.op == "ADD" and y is not x]
    if others and rng.random() < 0.7:
        y = rng.choice(others)
        src = [a for a in x.args if a[0] == "src"]
        y.args = src + [a for a in y.args if a[0] != "src"]
        return True
    y = copy(x)
    y.s = (x.s + 1) % d.stages
    rank = d.ranks[x.rank]
    rank.ins.insert(at(d, x) + 1, y)
    y.frees, x.frees = x.frees, []
    return True


@kind
def part_sent_early(d, rng):
    x = an_ins(d, rng, lambda x: x.op == "SEND_G")
    if not x:
        return False
    rank = d.ranks[x.rank]
    move(rank, x, at(d, x) - rng.randint(1, 6))
    for y in rank.ins[at(d, x):]:
        y.waited = [w for w in y.waited if w is not x]
    x.waited = [w for w in x.waited if rank.ins.index(w) < at(d, x)]
    return True


@kind
def group_made_smaller(d, rng):
    x = an_ins(d, rng, lambda x: x.op in COLLECTIVES and len(d.ranks[x.rank].lanes[x.lane][1]) > 2)
    if not x:
        return False
    kind, old = d.ranks[x.rank].lanes[x.lane]
    gone = rng.choice(old)
    new = tuple(q for q in old if q != gone)
    for rank in d.ranks:
        rank.lanes = [(k, new if (k, v) == (kind, old) else v) for k, v in rank.lanes]
    rank = d.ranks[gone]
    for l, lane in enumerate(rank.lanes):
        if lane == (kind, new):
            for y in [y for y in rank.ins if y.lane == l]:
                drop(d, y)
            rank.lanes[l] = (kind, old)
    return True


@kind
def group_changed_at_one(d, rng):
    x = an_ins(d, rng, lambda x: x.op in COLLECTIVES)
    if not x or d.workers < 3:
        return False
    rank = d.ranks[x.rank]
    other = rng.randrange(d.workers)
    rank.lanes[x.lane] = (rank.lanes[x.lane][0], tuple(sorted({x.rank, other})))
    return other != x.rank


@kind
def reduced_twice(d, rng):
    x = an_ins(d, rng, lambda x: x.op in COLLECTIVES)
    if not x:
        return False
    for q in d.ranks[x.rank].lanes[x.lane][1]:
        ins = d.ranks[q].ins
        for y in [y for y in ins if same(x, y)]:
            z = copy(y)
            z.s = (y.s + 1) % d.stages
            ins.insert(ins.index(y) + 1, z)
    return True


@kind
def zeroed(d, rng):
    x = an_ins(d, rng, lambda x: any(a[0] == "dw" for a in x.args))
    if not x:
        return False
    name = next(a[2] for a in x.args if a[0] == "dw")
    rank = d.ranks[x.rank]
    z = new_ins(rank, x.rank, 0, "ZERO", buf(rank, name).s, None, None, None, [("dw", False, name, (0, 1))])
    rank.ins.insert(rng.randint(max(0, at(d, x) - 3), at(d, x) + 1), z)
    if rng.random() < 0.6:
        for y in rank.ins:
            if ACCESS[y.op].get("dw") == "a" and rng.random() < 0.8:
                y.args = [(r, r == "dw" and n == name or a, n, c) for r, a, n, c in y.args]
    return True


@kind
def microbatch_takes_the_place_of_another(d, rng):
    """Lets a backward use another microbatch's tensors under its own name."""
    x = an_ins(d, rng, lambda x: x.op in ("B", "W", "I"))
    ys = [y for y in d.ranks[x.rank].ins if y.op == x.op and y.s == x.s and y is not x] if x else []
    if not ys:
        return False
    y = rng.choice(ys)
    swap = {a[2]: b[2] for a, b in zip(x.args, y.args) if a[0] == b[0] and a[0] in ("stash", "dy", "wstash")}
    x.args = [(r, a, swap.get(n, n), c) for r, a, n, c in x.args]
    return bool(swap)


@kind
def weights_swapped(d, rng):
    x = an_ins(d, rng, lambda x: any(a[0] in ("w", "v") for a in x.args))
    if not x:
        return False
    names = [b.name for b in d.ranks[x.rank].bufs if b.kind in ("weight", "wshard")]
    if len(names) < 2:
        return False
    x.args = [(r, a, rng.choice(names) if r in ("w", "v") else n, c) for r, a, n, c in x.args]
    return True


@kind
def home_more(d, rng):
    """Turns a fetched copy into a home's weights: no instance, never freed, perhaps with its own update."""
    rank, b = a_buf(d, rng, lambda b: b.kind == "weight" and b.inst is not None)
    if not b or any(o.name == f"weight({b.s})" for o in rank.bufs):
        return False
    rename(rank, b.name, f"weight({b.s})")
    for x in rank.ins:
        x.frees = [f for f in x.frees if f != b.name]
    if rng.random() < 0.7:
        r = d.ranks.index(rank)
        g = f"wgrad({b.s})"
        if any(o.name == g for o in rank.bufs):
            args = [("dw", False, g, (0, 1)), ("w", False, b.name, (0, 1))]
            rank.ins.append(new_ins(rank, r, 0, "U", b.s, None, None, None, args))
            for x in rank.ins:
                x.frees = [f for f in x.frees if f != g]
    return True


@kind
def home_less(d, rng):
    """Turns a home's weights into a copy: an instance, and no update."""
    x = an_ins(d, rng, lambda x: x.op == "U")
    if not x:
        return False
    rank = d.ranks[x.rank]
    name = f"weight({x.s})"
    drop(d, x)
    if any(b.name == name for b in rank.bufs) and not any(b.name == name + "#0" for b in rank.bufs):
        rename(rank, name, name + "#0")
    return True


# ---- needs, tokens, tables, the head ----

@kind
def need_dropped(d, rng):
    lines = [n for n in d.needs_list if n[1]]
    if not lines:
        return False
    n = rng.choice(lines)[1]
    n.pop(rng.randrange(len(n)))
    return True


@kind
def need_added(d, rng):
    if not d.needs_list:
        return False
    job, preds = rng.choice(d.needs_list)
    preds.append(rng.choice([job for job, _ in d.needs_list]))
    return True


@kind
def need_of_what_is_not(d, rng):
    if not d.needs_list:
        return False
    _, preds = rng.choice(d.needs_list)
    preds.append((rng.choice(JOBS), rng.randrange(d.stages), rng.randrange(d.batches)))
    return True


@kind
def need_line_dropped(d, rng):
    return bool(d.needs_list) and bool(d.needs_list.pop(rng.randrange(len(d.needs_list))))


@kind
def need_line_twice(d, rng):
    if not d.needs_list:
        return False
    j, q = rng.choice(d.needs_list)
    d.needs_list.append((j, list(q)))
    return True


@kind
def needs_shuffled(d, rng):
    rng.shuffle(d.needs_list)
    for _, q in d.needs_list:
        rng.shuffle(q)
    return bool(d.needs_list)


@kind
def needs_none(d, rng):
    had, d.needs_list = d.needs_list, []
    return bool(had)


@kind
def needs_said(d, rng):
    """Writes out the default dependencies, and perhaps one more."""
    if d.needs_list:
        return False
    jobs = {(x.op, x.s, x.b) for rank in d.ranks for x in rank.ins if x.op in JOBS}
    for op, s, b in sorted(jobs, key=lambda j: (j[1], j[2], j[0])):
        q = {"F": [("F", s - 1, b)], "R": [("F", s, b)], "W": [("I", s, b)]}.get(
            op, [("R" if ("R", s, b) in jobs else "F", s, b), ("B" if ("B", s + 1, b) in jobs else "I", s + 1, b)])
        d.needs_list.append(((op, s, b), [u for u in q if u in jobs]))
    if rng.random() < 0.7:
        need_added(d, rng)
    return True


@kind
def token_dropped(d, rng):
    x = an_ins(d, rng, lambda x: x.op == "SEND_T")
    y = partner(d, x)
    if not y:
        return False
    drop(d, x)
    drop(d, y)
    for u in (x, y):
        if not u.args:
            return True
        name = u.args[0][2]
        rank = d.ranks[u.rank]
        for z in rank.ins:
            z.args = [a for a in z.args if a[2] != name]
            z.frees = [f for f in z.frees if f != name]
        rank.bufs = [b for b in rank.bufs if b.name != name]
    return True


@kind
def token_without_buffer(d, rng):
    """Removes a token's buffer; its message stays and keeps the order."""
    x = an_ins(d, rng, lambda x: x.op in ("SEND_T", "RECV_T") and x.args)
    if not x:
        return False
    name, rank = x.args[0][2], d.ranks[x.rank]
    for z in rank.ins:
        z.args = [a for a in z.args if a[2] != name]
        z.frees = [f for f in z.frees if f != name]
    rank.bufs = [b for b in rank.bufs if b.name != name]
    return True


@kind
def tied_changed(d, rng):
    if d.tied is None:
        d.tied = rng.randrange(d.stages)
    else:
        d.tied = rng.choice([None] + list(range(d.stages)))
    return True


@kind
def table_operand_changed(d, rng):
    behind = ("v", "dv", "u", "du")
    x = an_ins(d, rng, lambda x: any(a[0] in behind for a in x.args))
    if not x:
        return False
    names = [b.name for b in d.ranks[x.rank].bufs if b.kind in ("weight", "wgrad")]
    i = rng.choice([i for i, a in enumerate(x.args) if a[0] in behind])
    how = rng.randrange(3)
    if how == 0:
        x.args.pop(i)
    elif how == 1:
        x.args[i] = (*x.args[i][:2], rng.choice(names), x.args[i][3])
    else:
        one, other = rng.choice((("w", "v"), ("w", "u"), ("v", "u")))
        swap = {one: other, other: one, "d" + one: "d" + other, "d" + other: "d" + one}
        x.args = [(swap.get(r, r), a, n, c) for r, a, n, c in x.args]
        order = list(ACCESS[x.op])
        x.args.sort(key=lambda a: order.index(a[0]))
    return True


@kind
def bare_changed(d, rng):
    """Adds a set to those without weights, or removes one."""
    d.bare = d.bare ^ {rng.randrange(d.sets)}
    return True


@kind
def team_divided(d, rng):
    """Flips whether a team's members have some parameters whole."""
    if d.teams is None:
        return False
    s = rng.randrange(len(d.teams.whole))
    d.teams.whole[s] = not d.teams.whole[s]
    return d.teams.member[d.teams.first[s]][1] is not None


@kind
def head_changed(d, rng):
    which = rng.choice(("workers", "stages", "batches"))
    setattr(d, which, max(1, getattr(d, which) + rng.choice((-1, 1))))
    return True
