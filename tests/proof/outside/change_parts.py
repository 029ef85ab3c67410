"""Changes to backwards in parts, and to gradients in pieces and in rounds."""

import re

from mutate import a_buf, an_ins, at, buf, copy, drop, kind, move, partner, rename, users
from program import ACCESS, JOBS, SENDS


def in_parts(x):
    return x.part[1] > 1


def all_parts(d, x):
    return [y for y in d.ranks[x.rank].ins if (y.op, y.s, y.b) == (x.op, x.s, x.b)]


def gradients(x):
    return [i for i, a in enumerate(x.args) if a[0] == "dw"]


@kind
def parts_exchanged(d, rng):
    """Swaps two parts' numbers, places, or whole contents."""
    x = an_ins(d, rng, in_parts)
    others = [y for y in all_parts(d, x) if y is not x] if x else []
    if not others:
        return False
    y, way = rng.choice(others), rng.randrange(3)
    if way == 0:
        x.part, y.part = y.part, x.part
    elif way == 1:
        x.args, y.args = y.args, x.args
    else:
        move(d.ranks[x.rank], x, at(d, y))
    return True


@kind
def part_dropped(d, rng):
    x = an_ins(d, rng, in_parts)
    if not x:
        return False
    drop(d, x)
    return True


@kind
def part_numbered_otherwise(d, rng):
    x = an_ins(d, rng, in_parts)
    if not x:
        return False
    i, n = x.part
    x.part = rng.choice([(i, n + 1), (i + 1, n + 1), (0, 1), (max(0, i - 1), n), (0, 255)])
    return True


@kind
def parts_numbered_otherwise(d, rng):
    """Renumbers all parts of a job: from another number on, or as if there were one more."""
    x = an_ins(d, rng, in_parts)
    if not x:
        return False
    more = rng.choice((0, 1))
    for y in all_parts(d, x):
        y.part = (y.part[0] + more, y.part[1] + 1)
    return True


@kind
def comes_between_parts(d, rng):
    """Moves another job, an update, or another instruction of the compute lane between two parts, from either side."""
    x = an_ins(d, rng, lambda x: in_parts(x) and x.part[0] > 0)
    rank = d.ranks[x.rank] if x else None
    others = [y for y in rank.ins if y.lane == 0 and y not in all_parts(d, x)] if x else []
    if not others:
        return False
    here = at(d, x)
    y = min(others, key=lambda y: abs(at(d, y) - here)) if rng.random() < 0.5 else rng.choice(others)
    move(rank, y, here - (at(d, y) < here))
    return True


@kind
def update_between_parts(d, rng):
    """Moves an update of any set between two parts, without its later waits."""
    x = an_ins(d, rng, lambda x: in_parts(x) and x.part[0] > 0)
    us = [y for y in d.ranks[x.rank].ins if y.op == "U"] if x else []
    if not us:
        return False
    u, rank = rng.choice(us), d.ranks[x.rank]
    move(rank, u, at(d, x))
    u.waited = [w for w in u.waited if at(d, w) < at(d, u)]
    return True


@kind
def part_at_another_time(d, rng):
    x = an_ins(d, rng, in_parts)
    if not x:
        return False
    move(d.ranks[x.rank], x, at(d, x) + rng.choice((-3, -2, -1, 1, 2, 3)))
    return True


@kind
def part_without_an_operand(d, rng):
    x = an_ins(d, rng, in_parts)
    i = [i for i, a in enumerate(x.args) if a[0] != "dw"] if x else []
    if not i:
        return False
    name = x.args.pop(rng.choice(i))[2]
    if rng.random() < 0.5:
        x.frees = [f for f in x.frees if f != name]
    return True


@kind
def part_frees_too_early(d, rng):
    x = an_ins(d, rng, lambda x: in_parts(x) and x.frees)
    first = [y for y in all_parts(d, x) if y.part[0] < x.part[0]] if x else []
    if not first:
        return False
    rng.choice(first).frees.append(x.frees.pop(rng.randrange(len(x.frees))))
    return True


@kind
def part_opens_another(d, rng):
    """Lets one part make its gradient, or its token, in another buffer than the rest."""
    x = an_ins(d, rng, lambda x: in_parts(x) and any(a[0] in ("dx", "done", "dv") for a in x.args))
    if not x:
        return False
    i = rng.choice([i for i, a in enumerate(x.args) if a[0] in ("dx", "done", "dv")])
    kind_ = buf(d.ranks[x.rank], x.args[i][2]).kind
    others = [b.name for b in d.ranks[x.rank].bufs if b.kind == kind_ and b.name != x.args[i][2]]
    if not others:
        return False
    x.args[i] = (*x.args[i][:2], rng.choice(others), x.args[i][3])
    return True


# ---- which pieces a part completes ----



@kind
def piece_in_another_part(d, rng):
    """Moves a piece to another part, copies it there, or drops it."""
    x = an_ins(d, rng, lambda x: in_parts(x) and gradients(x))
    others = [y for y in all_parts(d, x) if y is not x] if x else []
    if not others:
        return False
    y, i, way = rng.choice(others), rng.choice(gradients(x)), rng.choice((0, 0, 1, 1, 2))
    a = x.args[i]
    if way != 1:
        x.args.pop(i)
    if way != 2 and not any(o[2:] == a[2:] for o in y.args):
        y.args.append(a)
    by_role_of(x, y)
    return True


def by_role_of(*all_):
    """Orders operands by role as in the table, keeping the order within a role."""
    for x in all_:
        x.args.sort(key=lambda a: list(ACCESS[x.op]).index(a[0]))


@kind
def piece_begun_and_completed(d, rng):
    """Repeats a part's last piece as the next part's first, as if the border fell inside. Right if no read comes
    before."""
    x = an_ins(d, rng, lambda x: in_parts(x) and gradients(x) and x.part[0] + 1 < x.part[1])
    y = next((y for y in all_parts(d, x) if y.part[0] == x.part[0] + 1), None) if x else None
    if not y:
        return False
    a = x.args[gradients(x)[-1]]
    if any(o[2:] == a[2:] for o in y.args):
        return False
    at_ = gradients(y)[0] if gradients(y) else 0
    y.args.insert(at_, a)
    by_role_of(y)
    if rng.random() < 0.5:  # and waits for the first part wait for the second
        for z in d.ranks[x.rank].ins:
            z.waited = [y if w is x and z is not y and z.lane != y.lane else w for w in z.waited]
            if z.lane != x.lane and at(d, z) < at(d, y) and y in z.waited:
                z.waited.remove(y)
    return True


@kind
def part_adds_or_writes(d, rng):
    """Flips writing and adding for one piece, or for all of a part or of a job."""
    x = an_ins(d, rng, lambda x: x.op in ("B", "W") and len(gradients(x)) > 1)
    if not x:
        return False
    way = rng.randrange(3)
    for y in all_parts(d, x) if way == 2 else [x]:
        chosen = gradients(y) if way else [rng.choice(gradients(y))]
        y.args = [(r, not w if k in chosen else w, n, c) for k, (r, w, n, c) in enumerate(y.args)]
    return True


@kind
def waits_for_another_part(d, rng):
    """Lets an instruction that sends or reduces a piece wait for an earlier or a later part."""
    x = an_ins(d, rng, lambda x: any(in_parts(w) for w in x.waited))
    if not x:
        return False
    i = rng.choice([i for i, w in enumerate(x.waited) if in_parts(w)])
    others = [y for y in all_parts(d, x.waited[i]) if y is not x.waited[i] and y not in x.waited]
    if not others:
        return False
    x.waited[i] = rng.choice(others)
    return True


@kind
def cut_into_parts(d, rng):
    """Cuts a whole backward into two parts with half of the gradient each. Right if only the second part frees."""
    x = an_ins(d, rng, lambda x: x.op in ("B", "W") and not in_parts(x) and len(gradients(x)) == 1)
    if not x:
        return False
    rank, i = d.ranks[x.rank], gradients(x)[0]
    whole = x.args[i][3] == (0, 1) and buf(rank, x.args[i][2]).size % 2 == 0
    if rng.random() < 0.5 and not whole:
        return False
    y = copy(x)
    x.part, y.part = (0, 2), (1, 2)
    if whole and rng.random() < 0.8:
        x.args[i], y.args[i] = (*x.args[i][:3], (1, 2)), (*x.args[i][:3], (0, 2))
    rank.ins.insert(at(d, x) + 1, y)
    if rng.random() < 0.8:
        x.frees = []
    else:
        y.frees = []
    y.waited = []
    for z in rank.ins:
        z.waited = [y if w is x and rng.random() < 0.9 else w for w in z.waited]
    return True


@kind
def parts_joined(d, rng):
    """Joins all parts into one, with all pieces or with the whole."""
    x = an_ins(d, rng, in_parts)
    parts = all_parts(d, x) if x else []
    if len(parts) < 2:
        return False
    rank, last = d.ranks[x.rank], parts[-1]
    pieces, seen = [], set()
    for y in parts:
        for a in y.args:
            if a[0] == "dw" and a[2:] not in seen:
                seen.add(a[2:])
                pieces.append(a)
    if rng.random() < 0.5 and pieces:
        pieces = [(*pieces[0][:3], (0, 1))]
    last.args = [a for a in last.args if a[0] != "dw"] + pieces
    by_role_of(last)
    last.part = (0, 1)
    for y in parts[:-1]:
        last.waited += [w for w in y.waited if w not in last.waited]
        for z in rank.ins:
            z.waited = [last if w is y and last not in z.waited else w for w in z.waited]
        drop(d, y)
    return True


# ---- gradients in pieces, and in rounds ----

def moves_gradient(x):
    return x.op in ("SEND_G", "RECV_G", "ADD", "TAKE", "REDUCE", "ALL_REDUCE", "REDUCE_SCATTER") and x.args


@kind
def two_pieces_of_one_number(d, rng):
    """Sends, adds or reduces one piece twice, and another never."""
    x = an_ins(d, rng, lambda x: moves_gradient(x) and any(a[3][1] > 1 for a in x.args))
    ys = [y for y in d.ranks[x.rank].ins if y.op == x.op and y.s == x.s and y is not x and y.peer == x.peer and
          len(y.args) == len(x.args)] if x else []
    if not ys:
        return False
    y = rng.choice(ys)
    i = rng.randrange(len(x.args))
    for k in range(len(x.args)) if rng.random() < 0.4 else [i]:
        x.args[k] = (*x.args[k][:3], y.args[k][3])
    return True


@kind
def pieces_of_two_messages_exchanged(d, rng):
    """Swaps the pieces of two messages, at one end or at both, as if they had each other's number."""
    x = an_ins(d, rng, lambda x: x.op == "SEND_G" and any(a[3][1] > 1 for a in x.args))
    ys = [y for y in d.ranks[x.rank].ins if y.op == x.op and y.s == x.s and y is not x and y.peer == x.peer] if x else []
    if not ys:
        return False
    y = rng.choice(ys)
    ends = [(x, y), (partner(d, x), partner(d, y))]
    for u, v in ends if rng.random() < 0.6 else [rng.choice(ends)]:
        if u and v and u.args and v.args:
            u.args, v.args = v.args, u.args
            if rng.random() < 0.5:
                u.waited, v.waited = v.waited, u.waited
    return True


@kind
def piece_added_elsewhere(d, rng):
    """Gives an ADD, a TAKE or a REDUCE another piece as its target, or writes where it must add."""
    x = an_ins(d, rng, lambda x: x.op in ("ADD", "TAKE", "REDUCE") and any(a[0] == "dw" for a in x.args))
    if not x:
        return False
    i = gradients(x)[0]
    role, adds, name, (k, n) = x.args[i]
    way = rng.randrange(3)
    if way == 0 and n > 1:
        x.args[i] = (role, adds, name, (rng.randrange(n), n))
    elif way == 1:
        x.args[i] = (role, not adds, name, (k, n))
    elif n > 1:
        x.args[i] = (role, adds, name, (k * 2, n * 2))
    return True


@kind
def reduced_in_place(d, rng):
    """Lets the root of a REDUCE sum into its own source, or next to it."""
    x = an_ins(d, rng, lambda x: x.op == "REDUCE" and len(x.args) == 2)
    if not x:
        return False
    src = next(a for a in x.args if a[0] == "src")
    k, n = src[3]
    x.args = [src, ("dw", rng.random() < 0.3, src[2], (k, n) if rng.random() < 0.6 or n == 1 else ((k + 1) % n, n))]
    return True


def rounds(b):
    return b.kind in ("wgrad", "gshard") and b.b is None and b.inst is not None


@kind
def round_in_the_buffer_of_another(d, rng):
    """Puts two rounds of a set into one buffer, for all their instructions or one; may add to what is there."""
    rank, b = a_buf(d, rng, rounds)
    others = [o for o in rank.bufs if b and o is not b and o.kind == b.kind and o.s == b.s]
    if not others:
        return False
    o, all_ = rng.choice(others), users(rank, b.name)
    for x in all_ if rng.random() < 0.5 else all_[:1]:
        adds = rng.random() < 0.5
        x.args = [(r, (adds or w) if r == "dw" and n == b.name else w, o.name if n == b.name else n, c)
                  for r, w, n, c in x.args]
        x.frees = [o.name if f == b.name else f for f in x.frees]
    return True


@kind
def round_numbered_otherwise(d, rng):
    """Renumbers a round's buffer: to another rank's number, or another round's."""
    rank, b = a_buf(d, rng, rounds)
    if not b:
        return False
    inst = rng.choice((b.inst + 1, b.inst + d.workers, b.inst % d.workers, b.inst + 7 * d.workers))
    new = re.sub(r"#\d+$", f"#{inst}", b.name)
    if any(o.name == new for o in rank.bufs):
        return False
    rename(rank, b.name, new)
    b.inst = inst
    return True


@kind
def round_dropped(d, rng):
    """Drops what a rank sent in one round, so that its last contributions are lost, or its first."""
    x = an_ins(d, rng, lambda x: moves_gradient(x) and x.inst is not None)
    if not x:
        return False
    gone = [y for rank in d.ranks for y in rank.ins
            if (y.op, y.s, y.inst) == (x.op, x.s, x.inst)] if x.op not in SENDS else [x, partner(d, x)]
    for y in gone:
        if y:
            drop(d, y)
    return True


@kind
def another_round_of_the_job(d, rng):
    """Lets a backward contribute to the sum of another round, which another rank may already have."""
    x = an_ins(d, rng, lambda x: x.op in JOBS and gradients(x))
    rank = d.ranks[x.rank] if x else None
    name = x.args[gradients(x)[0]][2] if x else ""
    others = [b.name for b in rank.bufs if b.kind == "wgrad" and b.name != name and b.s == x.s] if x else []
    if not others:
        return False
    new, adds = rng.choice(others), rng.random() < 0.7
    x.args = [(r, (adds or w) if n == name else w, new if n == name else n, c) for r, w, n, c in x.args]
    return True


@kind
def added_in_another_order(d, rng):
    """Swaps two jobs of a rank that add to one gradient, both whole or both in parts, with all their parts."""
    x = an_ins(d, rng, lambda x: x.op in ("W", "B") and x.part[0] == 0)
    if x is None:
        return False
    ins = d.ranks[x.rank].ins
    others = [y for y in ins if y.op == x.op and y.s == x.s and y.b != x.b and y.part == x.part]
    if not others:
        return False
    y = rng.choice(others)
    mine, its = all_parts(d, x), all_parts(d, y)
    if len(mine) != len(its):
        return False
    places = [(ins.index(a), ins.index(b)) for a, b in zip(mine, its)]
    for (i, j), a, b in zip(places, mine, its):
        ins[i], ins[j] = b, a
        adds = {(o[0], o[3]): o[1] for o in a.args}, {(o[0], o[3]): o[1] for o in b.args}
        for z, of in (a, adds[1]), (b, adds[0]):
            z.args = [(r, of.get((r, piece), adds_), name, piece) for r, adds_, name, piece in z.args]
    return True


@kind
def ranges_changed(d, rng):
    """Changes what a part contributes according to the text: its begin or end, with or without its neighbour at that border. Or
    swaps it with another part's, repeats it, or drops it or the job's line."""
    if not d.contributed:
        return False
    at = rng.choice(sorted(d.contributed))
    ranges = d.contributed[at] = list(d.contributed[at])
    some = [i for i, r in enumerate(ranges) if r]
    i, j = rng.choice(some), rng.choice(some)
    by, way = rng.choice((-4, -1, 1, 4, 64, -64)), rng.randrange(7)
    begin, end = ranges[i]
    if way == 0:
        ranges[i] = max(0, begin + by), end
    elif way == 1:
        ranges[i] = begin, max(1, end + by)
    elif way == 2:
        ranges[i] = max(0, begin + by), end
        below = [k for k in some if k > i]
        if below:
            ranges[below[0]] = ranges[below[0]][0], max(0, begin + by)
    elif way == 3:
        ranges[i], ranges[j] = ranges[j], ranges[i]
    elif way == 4:
        ranges[i] = ranges[j]
    elif way == 5:
        ranges[i] = None
    else:
        del d.contributed[at]
    return True


@kind
def piece_moved(d, rng):
    """Moves a piece at the border of two parts to the other one, in one job or in all of the stage. What follows the
    part that completed it may then follow the earlier part."""
    x = an_ins(d, rng, lambda x: in_parts(x) and gradients(x) and any(n > 1 for *_, (_, n) in x.args))
    if x is None:
        return False
    parts = sorted(all_parts(d, x), key=lambda y: y.part)
    k = parts.index(x)
    if k == 0 or rng.random() < 0.3 and k + 1 < len(parts):
        other, mine = (parts[k + 1], gradients(x)[-1]) if k + 1 < len(parts) else (None, None)
    else:
        other, mine = parts[k - 1], gradients(x)[0]
    if other is None:
        return False
    a = x.args.pop(mine)
    if a not in other.args:
        its = gradients(other)
        where = (its[-1] + 1 if its else len(other.args)) if parts.index(other) < k else its[0] if its else len(other.args)
        other.args.insert(where, a)
        order = list(ACCESS[x.op])
        other.args.sort(key=lambda a: order.index(a[0]))
    for y in d.ranks[x.rank].ins if parts.index(other) < k else ():
        if x in y.waited and rng.random() < 0.8:
            y.waited = [other if w is x else w for w in y.waited]
    return True
