"""Changes to the memory plan, and to where buffers are freed."""

from mutate import a_buf, a_rank, an_ins, at, fit_arenas, kind, users
from program import RECVS, Buf

# ---- memory ----

@kind
def at_the_place_of_another(d, rng):
    rank, b = a_buf(d, rng)
    if not b:
        return False
    o = rng.choice(rank.bufs)
    b.off = o.off
    return o is not b


@kind
def half_on_another(d, rng):
    rank, b = a_buf(d, rng, lambda b: b.size > 1)
    if not b:
        return False
    b.off = max(0, b.off + rng.choice((-1, 1)) * rng.choice((1, b.size // 2, b.size - 1, b.size)))
    return b.off + b.size <= rank.arena


@kind
def place_moved_by_one(d, rng):
    rank, b = a_buf(d, rng)
    if not b:
        return False
    b.off = max(0, b.off + rng.choice((-1, 1)))
    return b.off + b.size <= rank.arena


@kind
def places_swapped(d, rng):
    rank, b = a_buf(d, rng)
    o = rng.choice(rank.bufs) if b else None
    if not b or o is b:
        return False
    b.off, o.off = o.off, b.off
    fit_arenas(rank)
    return True


def life(rank, b):
    u = [i for i, x in enumerate(rank.ins) if any(a[2] == b.name for a in x.args) or b.name in x.frees]
    return (u[0], u[-1]) if u else None


def takes_over(d, rng, ordered):
    """Puts a buffer in the place of one that is freed earlier in issue order."""
    rank, b = a_buf(d, rng, lambda b: b.kind not in ("opt", "work", "wstash") and not b.grows)
    span = life(rank, b) if b else None
    if not span:
        return False
    dead = [o for o in rank.bufs if o is not b and o.kind not in ("opt", "work") and life(rank, o) and
            life(rank, o)[1] < span[0] and o.size and o.off + b.size <= rank.arena]
    if not dead:
        return False
    o = rng.choice(dead[-4:])
    b.off = o.off
    if ordered:
        first, last = rank.ins[span[0]], rank.ins[life(rank, o)[1]]
        if first.lane != last.lane:
            first.waited.append(last)
    return True


@kind
def takes_over_the_place_of_a_dead_one(d, rng):
    return takes_over(d, rng, False)


@kind
def takes_over_the_place_of_a_dead_one_and_waits(d, rng):
    return takes_over(d, rng, True)


@kind
def size_changed(d, rng):
    rank, b = a_buf(d, rng)
    if b:
        b.size = rng.choice((0, max(0, b.size - 1), b.size + 1, 2 * b.size, 1 << 40))
        if rng.random() < 0.7:
            fit_arenas(rank)
    return bool(b)


@kind
def size_changed_everywhere(d, rng):
    _, b = a_buf(d, rng)
    if not b:
        return False
    size = rng.choice((0, 0, max(0, b.size - 1), b.size + 1))
    for rank in d.ranks:
        for o in rank.bufs:
            if (o.kind, o.s) == (b.kind, b.s):
                o.size = size
        fit_arenas(rank)
    return True


@kind
def all_of_a_kind_are_nothing(d, rng):
    k = rng.choice(("act", "grad", "kv", "dkv", "token", "stash", "weight", "wshard", "wgrad", "gshard", "wstash", "input"))
    found = False
    for rank in d.ranks:
        for b in rank.bufs:
            if b.kind == k:
                b.size, found = 0, True
    return found


@kind
def everything_is_nothing(d, rng):
    for rank in d.ranks:
        for b in rank.bufs:
            b.size = 0
            b.off = 0
        rank.arena, rank.host = rng.choice((0, 0, 1)), 0
    return True


@kind
def scaled(d, rng):
    k = rng.choice((2, 3, 1 << 20, 1 << 45, (1 << 55) + 1))
    if any(rank.arena * k >= 1 << 62 for rank in d.ranks):
        return False
    for rank in d.ranks:
        rank.arena, rank.host = rank.arena * k, rank.host * k
        for b in rank.bufs:
            b.off, b.size = b.off * k, b.size * k
    return True


def size_of(d, b, sizes):
    """Returns a buffer's size from sizes by kind, which for weights and gradients are the smallest piece's."""
    homes = d.homes[b.s] if d.homes and b.s is not None and b.s < len(d.homes) else None
    size, shares = (homes.size, homes.shares()) if homes else (1, 1)
    whole = {"weight": size * shares, "wgrad": size * shares, "wshard": shares, "gshard": shares}
    kind = {"wshard": "weight", "gshard": "wgrad", "gown": "wgrad", "hopt": "opt", "hstash": "stash", "rstash": "stash",
            "hinput": "input", "rinput": "input"}.get(b.kind, b.kind)
    return b.size if kind in ("mid", "norm") else sizes[kind] * whole.get(b.kind, 1)


def lay_apart(d, rng, sizes):
    """Gives every buffer its own place, with sizes by kind: nothing is reused, and waits for reuse are superfluous."""
    for rank in d.ranks:
        end, fixed = 0, {}
        for b in rank.bufs:
            b.size = size_of(d, b, sizes)
            if b.grows:
                fixed[b.grows] = end
        for b in rank.bufs:
            b.off = end
            end += max(b.size, sizes["wstash"] if b.grows else 0)
            if b.grows:
                fixed[b.grows] = b.off
        for b in rank.bufs:
            b.off = fixed.get(b.name, b.off)
        fit_arenas(rank)


@kind
def laid_apart(d, rng):
    sizes = {k: rng.choice((1, 2, 3, 4, 7)) for k in ("weight", "wgrad", "opt", "work", "act", "grad", "input", "kv", "dkv")}
    sizes["wgrad"] = max(sizes["weight"], sizes["wgrad"])
    sizes["token"] = rng.choice((0, 0, 1, 4))
    sizes["stash"] = rng.choice((1, 2, 5))
    sizes["wstash"] = sizes["stash"] + rng.choice((0, 1, 3))
    lay_apart(d, rng, sizes)
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        lies_partly_on_a_dead_one(d, rng)
    return True


@kind
def lies_partly_on_a_dead_one(d, rng):
    rank, b = a_buf(d, rng, lambda b: b.kind not in ("opt", "work", "wstash") and not b.grows)
    span = life(rank, b) if b else None
    if not span or not b.size:
        return False
    dead = [o for o in rank.bufs if o is not b and o.kind not in ("opt", "work") and o.size and life(rank, o) and
            life(rank, o)[1] < span[0]]
    if not dead:
        return False
    o = rng.choice(dead)
    b.off = max(0, min(o.off + rng.randint(1 - b.size, o.size - 1), rank.arena - b.size))
    if rng.random() < 0.4:
        first, last = rank.ins[span[0]], rank.ins[life(rank, o)[1]]
        if first.lane != last.lane:
            first.waited.append(last)
    return True


@kind
def arena_changed(d, rng):
    rank = a_rank(d, rng)
    rank.arena = rng.choice((0, max(0, rank.arena - 1), rank.arena + 1, 1 << 62, 1 << 61))
    return True


@kind
def growth_changed(d, rng):
    rank, b = a_buf(d, rng, lambda b: b.kind in ("stash", "wstash", "act", "grad", "kv", "dkv"))
    if not b:
        return False
    b.grows = None if b.grows else rng.choice(rank.bufs).name
    return True


@kind
def no_place(d, rng):
    _, b = a_buf(d, rng)
    if b:
        b.off = -1
    return bool(b)


@kind
def memory_line_twice(d, rng):
    rank, b = a_buf(d, rng)
    if b:
        rank.bufs.append(b)
    return bool(b)


@kind
def memory_line_dropped(d, rng):
    rank, b = a_buf(d, rng)
    if b:
        rank.bufs.remove(b)
    return bool(b)


@kind
def memory_lines_shuffled(d, rng):
    rng.shuffle(a_rank(d, rng).bufs)
    return True


@kind
def another_buffer(d, rng):
    rank, b = a_buf(d, rng)
    if not b:
        return False
    new = Buf()
    for slot in Buf.__slots__:
        setattr(new, slot, getattr(b, slot))
    new.kind = "token" if b.b is not None else rng.choice(("weight", "wgrad", "opt"))
    new.name = f"{new.kind}({b.s if b.s is not None else 0}" + (f",{b.b})#4" if b.b is not None else ")")
    new.grows = None
    if any(o.name == new.name for o in rank.bufs):
        return False
    rank.bufs.append(new)
    return True


# ---- frees ----

def has_frees(x):
    return x.frees


@kind
def free_dropped(d, rng):
    x = an_ins(d, rng, has_frees)
    return bool(x) and bool(x.frees.pop(rng.randrange(len(x.frees))))


def free_moved(d, rng, step):
    x = an_ins(d, rng, has_frees)
    if not x:
        return False
    ins = d.ranks[x.rank].ins
    j = at(d, x) + step * rng.choice((1, 1, 2, 3, 5))
    if not 0 <= j < len(ins):
        return False
    ins[j].frees.append(x.frees.pop(rng.randrange(len(x.frees))))
    return True


@kind
def free_earlier(d, rng):
    return free_moved(d, rng, -1)


@kind
def free_later(d, rng):
    return free_moved(d, rng, 1)


@kind
def free_at_another_use(d, rng):
    x = an_ins(d, rng, has_frees)
    if not x:
        return False
    name = rng.choice(x.frees)
    others = [y for y in users(d.ranks[x.rank], name) if y is not x]
    if not others:
        return False
    x.frees.remove(name)
    rng.choice(others).frees.append(name)
    return True


@kind
def freed_twice(d, rng):
    x = an_ins(d, rng, has_frees)
    if not x:
        return False
    name = rng.choice(x.frees)
    rng.choice([x] + d.ranks[x.rank].ins).frees.append(name)
    return True


@kind
def free_of_any(d, rng):
    x = an_ins(d, rng)
    x.frees.append(rng.choice(d.ranks[x.rank].bufs).name)
    return True


@kind
def freed_where_it_is_written(d, rng):
    """Lets the writer free a buffer that has one writer and one reader."""
    x = an_ins(d, rng, lambda x: x.op in RECVS and x.args)
    if not x:
        return False
    name = x.args[0][2]
    for y in d.ranks[x.rank].ins:
        y.frees = [f for f in y.frees if f != name]
    x.frees.append(name)
    return True
