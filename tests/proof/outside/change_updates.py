"""Changes to updates that are jobs, to versions of weights, and to the period."""

from mutate import a_rank, an_ins, at, kind, move


@kind
def another_version(d, rng):
    x = an_ins(d, rng, lambda x: x.version is not None)
    if not x:
        return False
    like = [y for rank in d.ranks for y in rank.ins if y.version is not None and (y.s, y.b) == (x.s, x.b)]
    now = max(0, x.version + rng.choice((-1, 1)))
    for y in like if rng.random() < 0.5 else [x]:
        y.version = now
    return True


@kind
def other_weights_of_the_stage(d, rng):
    """Lets a reader take its rank's newest weights, or another version or stay of them."""
    x = an_ins(d, rng, lambda x: any(a[0] in ("w", "t", "src") and a[2].startswith("weight(") for a in x.args))
    if not x or not d.updates:
        return False
    names = [b.name for b in d.ranks[x.rank].bufs if b.kind == "weight" and b.s == x.s]
    now = rng.choice(names) if names else None
    x.args = [(r, adds, now if now and n.startswith("weight(") else n, piece) for r, adds, n, piece in x.args]
    return now is not None


@kind
def copy_elsewhere(d, rng):
    """Moves the copy of a version before or after the next update; it may come after its readers."""
    x = an_ins(d, rng, lambda x: x.op == "COPY")
    if not x or not d.updates:
        return False
    move(d.ranks[x.rank], x, at(d, x) + rng.choice((-2, -1, 1, 2, 3)))
    return True


@kind
def updates_exchanged(d, rng):
    x = an_ins(d, rng, lambda x: x.op == "U")
    others = [y for y in d.ranks[x.rank].ins if y.op == "U" and y is not x and y.s == x.s] if x else []
    if not others:
        return False
    y = rng.choice(others)
    x.b, y.b = y.b, x.b
    if rng.random() < 0.5:
        x.args, y.args = y.args, x.args
    return True


@kind
def update_elsewhere(d, rng):
    x = an_ins(d, rng, lambda x: x.op == "U")
    if not x or not d.updates:
        return False
    move(d.ranks[x.rank], x, at(d, x) + rng.choice((-3, -2, -1, 1, 2, 3)))
    return True


def move_mark(rank, section, by):
    first = next((i for i, x in enumerate(rank.ins) if x.section >= section), len(rank.ins))
    for x in rank.ins[first:first + by] if by > 0 else rank.ins[max(0, first + by):first]:
        x.section = section - 1 if by > 0 else section


@kind
def mark_moved(d, rng):
    if not d.period:
        return False
    by, section = rng.choice((-2, -1, 1, 2)), rng.choice((1, 2))
    for rank in d.ranks if rng.random() < 0.3 else [a_rank(d, rng)]:
        move_mark(rank, section, by)
    return True


@kind
def period_shifted(d, rng):
    """Moves both marks of a rank, or of all ranks."""
    if not d.period:
        return False
    by = rng.choice((-2, -1, 1, 2))
    for rank in d.ranks if rng.random() < 0.3 else [a_rank(d, rng)]:
        for section in (1, 2) if by < 0 else (2, 1):
            move_mark(rank, section, by)
    return True


@kind
def another_period(d, rng):
    if not d.period:
        return False
    d.period = rng.randint(1, d.batches), d.period[1]
    return True
