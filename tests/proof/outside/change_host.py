"""Changes to copies to host memory and back, and to fetched weights that are passed on."""

from mutate import a_buf, an_ins, at, buf, drop, fit_arenas, kind, move, new_ins, rename, users
from program import HOST_COPIES, JOBS, OFFLOADS, RELOADS


def is_copy(x):
    return x.op in HOST_COPIES and len(x.args) == 2


def backwards(rank, name):
    return [x for x in users(rank, name) if x.op in JOBS]


def used_by(d, rng, kinds):
    """Draws a rank's buffer of one of these kinds, and returns the jobs that use it."""
    rank, b = a_buf(d, rng, lambda b: b.kind in kinds)
    jobs = backwards(rank, b.name) if b else []
    return rank, b, jobs


@kind
def host_copy_dropped(d, rng):
    x = an_ins(d, rng, is_copy)
    if not x:
        return False
    drop(d, x)
    return True


@kind
def never_leaves(d, rng):
    """Drops both copies; the backward reads the stash itself. Right if it is freed there and nothing took its place."""
    rank, b, jobs = used_by(d, rng, ("rstash", "rinput"))
    reload = next((x for x in users(rank, b.name) if x.op in RELOADS), None) if b else None
    offload = next((x for x in rank.ins if x.op in OFFLOADS and reload and (x.s, x.b) == (reload.s, reload.b)), None)
    if not offload or not jobs:
        return False
    name = f"{b.kind[1:]}({b.s},{b.b})"
    rename(rank, b.name, name, False)
    grows = b.grows
    rank.bufs = [o for o in rank.bufs if o is not b and o.name != f"h{name}"]
    stays = [o for o in rank.bufs if o.name == name]
    for o in stays:
        o.grows = grows
    for y in rank.ins:
        y.waited = [w for w in y.waited if w is not reload] + ([offload.waited[0]] if reload in y.waited and offload.waited
                                                               and offload.waited[0].lane != y.lane else [])
    drop(d, offload)
    drop(d, reload)
    if rng.random() < 0.7:
        for o in stays:  # a place of its own
            o.off, rank.arena = rank.arena, rank.arena + 2 * o.size
            for g in rank.bufs:
                g.off = o.off if g.name == grows else g.off
    fit_arenas(rank)
    return True


@kind
def copies_exchanged(d, rng):
    """Two copies of a rank read each other's source, or write each other's target."""
    x = an_ins(d, rng, is_copy)
    ys = [y for y in d.ranks[x.rank].ins if y.op == x.op and y is not x and is_copy(y)] if x else []
    if not ys:
        return False
    y = rng.choice(ys)
    i = rng.randrange(2)
    x.args[i], y.args[i] = y.args[i], x.args[i]
    if rng.random() < 0.7:
        x.frees, y.frees = y.frees, x.frees
    if rng.random() < 0.5:
        x.waited, y.waited = y.waited, x.waited
    return True


@kind
def another_way_through_host_memory(d, rng):
    """Both copies of two microbatches use each other's place in host memory: wrong by name only, or by time."""
    x = an_ins(d, rng, lambda x: x.op == "OFFLOAD_S" and is_copy(x))
    ys = [y for y in d.ranks[x.rank].ins if y.op == x.op and y is not x and is_copy(y)] if x else []
    if not ys:
        return False
    y = rng.choice(ys)
    rank, names = d.ranks[x.rank], (x.args[1][2], y.args[1][2])
    swap = dict(zip(names, names[::-1]))
    for z in users(rank, names[0]) + [z for z in users(rank, names[1]) if names[0] not in [a[2] for a in z.args]]:
        z.args = [(r, a, swap.get(n, n), c) for r, a, n, c in z.args]
        z.frees = [swap.get(n, n) for n in z.frees]
    return True


@kind
def reads_what_left(d, rng):
    """A backward reads the stash, the copy of another microbatch, or host memory."""
    rank, b, jobs = used_by(d, rng, ("rstash", "rinput"))
    others = [o.name for o in rank.bufs if b and o is not b and o.kind in (b.kind, b.kind[1:], "h" + b.kind[1:])]
    if not others or not jobs:
        return False
    x, new = rng.choice(jobs), rng.choice(others)
    x.args = [(r, a, new if n == b.name else n, c) for r, a, n, c in x.args]
    if rng.random() < 0.4:
        x.frees = [new if n == b.name else n for n in x.frees]
    return True


@kind
def copy_waits_for_nothing(d, rng):
    x = an_ins(d, rng, lambda x: is_copy(x) and x.waited)
    if not x:
        return False
    x.waited.pop(rng.randrange(len(x.waited)))
    return True


@kind
def nobody_waits_for_a_copy(d, rng):
    x = an_ins(d, rng, is_copy)
    if not x:
        return False
    for y in d.ranks[x.rank].ins:
        y.waited = [w for w in y.waited if w is not x]
    return True


@kind
def copy_moved(d, rng):
    x = an_ins(d, rng, is_copy)
    if not x:
        return False
    rank = d.ranks[x.rank]
    move(rank, x, at(d, x) + rng.choice((-6, -3, -2, -1, 1, 2, 3, 6)))
    if rng.random() < 0.7:
        x.waited = [w for w in x.waited if rank.ins.index(w) < at(d, x)]
        for y in rank.ins[:at(d, x)]:
            y.waited = [w for w in y.waited if w is not x]
    return True


@kind
def host_place_taken_over(d, rng):
    """Puts a buffer in the place of another in host memory. Its writer may wait for the other's last use."""
    rank, b = a_buf(d, rng, lambda b: b.on_host() and b.kind != "hopt")
    others = [o for o in rank.bufs if b and o.on_host() and o is not b]
    if not others:
        return False
    o = rng.choice(others)
    b.off = o.off
    rank.host = max(rank.host, b.off + b.size)
    first, last = users(rank, b.name)[:1], users(rank, o.name)[-1:]
    if rng.random() < 0.5 and first and last and first[0].lane != last[0].lane and at(d, last[0]) < at(d, first[0]):
        first[0].waited.append(last[0])
    return True


@kind
def host_place_of_its_own(d, rng):
    """Gives a reused place in host memory its own bytes, so that it needs no order."""
    rank, b = a_buf(d, rng, lambda b: b.on_host())
    if not b:
        return False
    b.off, rank.host = rank.host, rank.host + b.size
    return True


@kind
def host_memory_changed(d, rng):
    x = an_ins(d, rng, is_copy)
    if not x:
        return False
    rank = d.ranks[x.rank]
    rank.host = rng.choice((0, rank.host - 1, rank.host + 1, 1 << 60))
    return True


@kind
def in_the_other_memory(d, rng):
    """Puts a copy's target, or source, into the memory on its other side."""
    x = an_ins(d, rng, is_copy)
    if not x:
        return False
    rank, i = d.ranks[x.rank], rng.randrange(2)
    b = buf(rank, x.args[i][2])
    others = [o.name for o in rank.bufs if o.on_host() != b.on_host() and o.size == b.size]
    if not others:
        return False
    x.args[i] = (*x.args[i][:2], rng.choice(others), x.args[i][3])
    return True


@kind
def touches_host_memory(d, rng):
    """Lets another instruction than a copy use host memory, in one of its operands or everywhere under that name."""
    rank, b = a_buf(d, rng, lambda b: b.on_host())
    x = an_ins(d, rng, lambda x: b and x.rank == d.ranks.index(rank) and not is_copy(x) and x.args)
    if not x:
        return False
    old = rng.choice(x.args)[2]
    if rng.random() < 0.5 and buf(rank, old).b is not None:
        for y in users(rank, old):
            y.args = [(r, a, b.name if n == old else n, c) for r, a, n, c in y.args]
            y.frees = [b.name if n == old else n for n in y.frees]
    else:
        x.args = [(r, a, b.name if n == old else n, c) for r, a, n, c in x.args]
    return True


@kind
def copied_again(d, rng):
    """Adds a second RELOAD for another microbatch, into the same place or over what the backward reads."""
    x = an_ins(d, rng, is_copy)
    if not x:
        return False
    rank = d.ranks[x.rank]
    z = new_ins(rank, x.rank, x.lane, x.op, rng.randrange(d.stages),
                rng.randrange(d.batches) if x.b is not None else None, None, None, list(x.args))
    rank.ins.insert(at(d, x) + 1, z)
    if rng.random() < 0.6:
        z.frees, x.frees = x.frees, []
    return True


# ---- the optimizer's state ----

@kind
def state_copied_at_another_time(d, rng):
    """Reloads the state before the update has ended, or offloads it only after another; may move its waits as well."""
    x = an_ins(d, rng, lambda x: x.op in ("OFFLOAD_O", "RELOAD_O"))
    u = next((u for u in d.ranks[x.rank].ins if u.op == "U" and u.s == x.s), None) if x else None
    if not u:
        return False
    rank, before = d.ranks[x.rank], x.op == "OFFLOAD_O"
    if rng.random() < 0.5:
        x.waited = [w for w in x.waited if w is not u]
        u.waited = [w for w in u.waited if w is not x]
    if rng.random() < 0.7:
        move(rank, x, at(d, u) + (0 if before else 1))
    return True


@kind
def state_stays(d, rng):
    """Keeps the state in the rank's own memory for the whole step, or with one of the copies left."""
    x = an_ins(d, rng, lambda x: x.op == "RELOAD_O" and is_copy(x))
    if not x:
        return False
    rank, name = d.ranks[x.rank], f"opt({x.s})"
    gone = [y for y in rank.ins if y.op in ("OFFLOAD_O", "RELOAD_O") and y.s == x.s]
    way = rng.randrange(3)
    for y in gone if way else gone[:1]:
        drop(d, y)
    for y in rank.ins:
        y.frees = [f for f in y.frees if f != name]
    if way < 2:
        rank.bufs = [b for b in rank.bufs if b.name != "h" + name or any(users(rank, b.name))]
        buf(rank, name).off, rank.arena = rank.arena, rank.arena + buf(rank, name).size
        fit_arenas(rank)
    return True


@kind
def state_of_another_set(d, rng):
    x = an_ins(d, rng, lambda x: x.op in ("OFFLOAD_O", "RELOAD_O", "U") and x.args)
    rank = d.ranks[x.rank] if x else None
    i = rng.randrange(len(x.args)) if x else 0
    others = [b.name for b in rank.bufs if b.kind in ("opt", "hopt") and b.name != x.args[i][2]] if x else []
    if not others or x.op == "U" and x.args[i][0] != "opt":
        return False
    x.args[i] = (*x.args[i][:2], rng.choice(others), x.args[i][3])
    return True


# ---- weights passed on ----

def passes_on(x):
    return x.op == "SERVE" and x.args and "#" in x.args[0][2]


@kind
def passed_on_before_it_came(d, rng):
    x = an_ins(d, rng, lambda x: passes_on(x) and x.waited)
    if not x:
        return False
    x.waited.pop(rng.randrange(len(x.waited)))
    if rng.random() < 0.3:
        move(d.ranks[x.rank], x, at(d, x) - rng.randint(1, 4))
    return True


@kind
def passed_on_of_another(d, rng):
    """Passes on other fetched weights, those at home, or the same ones by another name."""
    x = an_ins(d, rng, passes_on)
    rank = d.ranks[x.rank] if x else None
    others = [b.name for b in rank.bufs if b.kind == "weight" and b.name != x.args[0][2]] if x else []
    if not others:
        return False
    same = [n for n in others if n.startswith(x.args[0][2].split("#")[0])]
    x.args[0] = (*x.args[0][:2], rng.choice(same or others), x.args[0][3])
    return True


@kind
def freed_before_it_is_passed_on(d, rng):
    """Lets the last job that reads the weights free them, without a wait for the SERVE."""
    x = an_ins(d, rng, passes_on)
    if not x:
        return False
    rank, name = d.ranks[x.rank], x.args[0][2]
    jobs = backwards(rank, name)
    if jobs and rng.random() < 0.7:
        for y in rank.ins:
            y.frees = [f for f in y.frees if f != name]
        rng.choice(jobs[-2:] + [x]).frees.append(name)
    if rng.random() < 0.6:
        for y in rank.ins:
            y.waited = [w for w in y.waited if w is not x]
    return True
