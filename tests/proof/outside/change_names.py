"""Changes to operands, to labels, and to single bytes of the text."""

import re

from mutate import a_buf, an_ins, buf, kind, partner, rename, text_kind
from program import ACCESS, JOBS, NO_BATCH, RECVS, SENDS

# ---- operands ----

def has_args(x):
    return x.args


@kind
def operand_dropped(d, rng):
    x = an_ins(d, rng, has_args)
    return bool(x) and bool(x.args.pop(rng.randrange(len(x.args))))


@kind
def operand_dropped_and_its_free(d, rng):
    x = an_ins(d, rng, has_args)
    if not x:
        return False
    name = x.args.pop(rng.randrange(len(x.args)))[2]
    x.frees = [f for f in x.frees if f != name]
    return True


@kind
def operand_twice(d, rng):
    x = an_ins(d, rng, lambda x: any(a[0] in ("x", "dy", "t") for a in x.args) and x.op in JOBS)
    if not x:
        return False
    i = rng.choice([i for i, a in enumerate(x.args) if a[0] in ("x", "dy", "t")])
    x.args.insert(i, x.args[i])
    return True


@kind
def operand_of_same_kind(d, rng):
    x = an_ins(d, rng, has_args)
    if not x:
        return False
    rank, i = d.ranks[x.rank], rng.randrange(len(x.args))
    role, adds, name, piece = x.args[i]
    b = buf(rank, name)
    others = [o.name for o in rank.bufs if o.kind == b.kind and o is not b]
    if not others:
        return False
    new = rng.choice(others)
    x.args[i] = (role, adds, new, piece)
    if rng.random() < 0.5:
        x.frees = [new if f == name else f for f in x.frees]
    return True


@kind
def operand_any(d, rng):
    x = an_ins(d, rng, has_args)
    if not x:
        return False
    i = rng.randrange(len(x.args))
    x.args[i] = (*x.args[i][:2], rng.choice(d.ranks[x.rank].bufs).name, x.args[i][3])
    return True


@kind
def operand_added(d, rng):
    x = an_ins(d, rng)
    roles = [r for r in ACCESS[x.op] if r in ("x", "dy", "t") and x.op in JOBS or all(a[0] != r for a in x.args)]
    if not roles:
        return False
    x.args.append((rng.choice(roles), False, rng.choice(d.ranks[x.rank].bufs).name, (0, 1)))
    order = list(ACCESS[x.op])
    x.args.sort(key=lambda a: order.index(a[0]))
    return True


@kind
def operands_of_two_swapped(d, rng):
    x = an_ins(d, rng, has_args)
    ys = [y for y in d.ranks[x.rank].ins if y.op == x.op and y is not x and len(y.args) == len(x.args)] if x else []
    if not ys:
        return False
    y, i = rng.choice(ys), rng.randrange(len(x.args))
    a, b = x.args[i], y.args[i]
    x.args[i], y.args[i] = (*a[:2], *b[2:]), (*b[:2], *a[2:])
    if rng.random() < 0.5:
        x.frees, y.frees = ([b[2] if f == a[2] else f for f in x.frees], [a[2] if f == b[2] else f for f in y.frees])
    return True


def flips(x):
    return any(ACCESS[x.op][a[0]] == "a" for a in x.args)


@kind
def adds_or_writes(d, rng):
    x = an_ins(d, rng, flips)
    if not x:
        return False
    i = rng.choice([i for i, a in enumerate(x.args) if ACCESS[x.op][a[0]] == "a"])
    x.args[i] = (x.args[i][0], not x.args[i][1], *x.args[i][2:])
    return True


@kind
def first_contribution_is_another(d, rng):
    """Writes where it added, and adds where it wrote, within one gradient of one rank."""
    x = an_ins(d, rng, flips)
    if not x:
        return False
    a = next(a for a in x.args if ACCESS[x.op][a[0]] == "a")
    all_ = [y for y in d.ranks[x.rank].ins if flips(y) and any(b[2] == a[2] for b in y.args)]
    for y in all_:
        y.args = [(r, y is not x if n == a[2] and ACCESS[y.op][r] == "a" else w, n, c) for r, w, n, c in y.args]
    return len(all_) > 1


NUMBERED_KINDS = ("weight", "wgrad", "gshard")


@kind
def buffer_renamed(d, rng):
    rank, b = a_buf(d, rng, lambda b: b.s is not None)
    if not b:
        return False
    s = rng.randrange(d.stages)
    inst = f"#{b.inst}" if b.inst is not None else rng.choice(("", "", "#0")) if b.kind in NUMBERED_KINDS else ""
    new = f"{b.kind}({s},{rng.randrange(d.batches)}){inst}" if b.b is not None else f"{b.kind}({s}){inst}"
    if any(o.name == new for o in rank.bufs):
        return False
    rename(rank, b.name, new)
    return True


@kind
def two_buffers_renamed(d, rng):
    rank, b = a_buf(d, rng)
    o = rng.choice([o for o in rank.bufs if o.kind == b.kind]) if b else None
    if not b or o is b:
        return False
    one, two = b.name, o.name
    rename(rank, one, "-", True)
    rename(rank, two, one, True)
    rename(rank, "-", two, True)
    return True


@kind
def two_buffers_exchanged_from_here(d, rng):
    """Swaps two buffers from an instruction on."""
    rank, b = a_buf(d, rng)
    others = [o for o in rank.bufs if o.kind == b.kind and o is not b] if b else []
    if not others:
        return False
    o, k = rng.choice(others), rng.randrange(len(rank.ins)) if rank.ins else 0
    swap = {b.name: o.name, o.name: b.name}
    for x in rank.ins[k:]:
        x.args = [(r, a, swap.get(n, n), c) for r, a, n, c in x.args]
        x.frees = [swap.get(n, n) for n in x.frees]
    return True


@kind
def one_buffer_for_two(d, rng):
    """Moves all uses of one buffer to another of its kind."""
    rank, b = a_buf(d, rng)
    others = [o for o in rank.bufs if o.kind == b.kind and o is not b] if b else []
    if not others:
        return False
    rename(rank, b.name, rng.choice(others).name, False)
    rank.bufs.remove(b)
    return True


# ---- labels ----

@kind
def stage_or_batch_changed(d, rng):
    x = an_ins(d, rng)
    if x.b is not None and rng.random() < 0.6:
        x.b = rng.randrange(d.batches)
    else:
        x.s = rng.randrange(d.stages)
    return True


@kind
def labels_swapped(d, rng):
    x = an_ins(d, rng)
    ys = [y for y in d.ranks[x.rank].ins if y.op == x.op and y is not x and y.peer == x.peer]
    if not ys:
        return False
    y = rng.choice(ys)
    x.s, x.b, x.inst, y.s, y.b, y.inst = y.s, y.b, y.inst, x.s, x.b, x.inst
    return True


@kind
def labels_swapped_at_both_ends(d, rng):
    x = an_ins(d, rng, lambda x: x.op in SENDS)
    ys = [y for y in d.ranks[x.rank].ins if y.op == x.op and y is not x and y.peer == x.peer] if x else []
    if not ys:
        return False
    y = rng.choice(ys)
    a, b = partner(d, x), partner(d, y)
    for u, v in ((x, y), (a, b)):
        if u and v:
            u.s, u.b, u.inst, v.s, v.b, v.inst = v.s, v.b, v.inst, u.s, u.b, u.inst
    return True


@kind
def payloads_swapped_at_both_ends(d, rng):
    """Lets two messages carry each other's tensors into each other's buffers."""
    x = an_ins(d, rng, lambda x: x.op in SENDS and x.args)
    ys = [y for y in d.ranks[x.rank].ins if y.op == x.op and y is not x and y.peer == x.peer and y.args] if x else []
    if not ys:
        return False
    y = rng.choice(ys)
    for u, v in ((x, y), (partner(d, x), partner(d, y))):
        if u and v:
            u.args, v.args, u.frees, v.frees = v.args, u.args, v.frees, u.frees
            if rng.random() < 0.7:
                u.waited, v.waited = v.waited, u.waited
    return True


@kind
def message_renamed_at_both_ends(d, rng):
    x = an_ins(d, rng, lambda x: x.op in SENDS)
    y = partner(d, x)
    if not y:
        return False
    if x.inst is not None and rng.random() < 0.7:
        x.inst = y.inst = rng.randrange(6)
    elif x.b is not None and rng.random() < 0.7:
        x.b = y.b = rng.randrange(d.batches)
    elif x.op[-2] == "_" and rng.random() < 0.5:
        k = rng.choice("FBSW") if x.op[-1] in "FBSW" else x.op[-1]
        x.op, y.op = "SEND_" + k, "RECV_" + k
    else:
        x.s = y.s = rng.randrange(d.stages)
    return True


@kind
def peer_changed(d, rng):
    x = an_ins(d, rng, lambda x: x.peer is not None)
    if x:
        x.peer = rng.randrange(d.workers)
    return bool(x)


@kind
def instance_changed(d, rng):
    x = an_ins(d, rng, lambda x: x.inst is not None)
    if x:
        x.inst = rng.choice((0, 1, 2, 3, 4, 5, 2147483647, None))
    return bool(x)


@kind
def operation_changed(d, rng):
    x = an_ins(d, rng)
    same = [op for op in ACCESS if (op in SENDS, op in RECVS, op in NO_BATCH) ==
            (x.op in SENDS, x.op in RECVS, x.op in NO_BATCH)]
    x.op = rng.choice(same)
    x.args = [a for a in x.args if a[0] in ACCESS[x.op]]
    return True


# ---- the text ----

@text_kind
def line_dropped(text, rng):
    lines = text.split("\n")
    lines.pop(rng.randrange(len(lines)))
    return "\n".join(lines)


@text_kind
def line_twice(text, rng):
    lines = text.split("\n")
    i = rng.randrange(len(lines))
    lines.insert(rng.randrange(len(lines)), lines[i])
    return "\n".join(lines)


@text_kind
def number_changed(text, rng):
    at_ = [m.span() for m in re.finditer(r"\d+", text)]
    a, b = rng.choice(at_)
    new = rng.choice(("0", "1", "2", "7", "-1", "00", "2147483647", "2147483648", "4294967296", "9223372036854775807",
                      "9223372036854775808", "99999999999999999999", "4611686018427387904", ""))
    return text[:a] + new + text[b:]


@text_kind
def byte_changed(text, rng):
    i = rng.randrange(len(text))
    return text[:i] + rng.choice(" \n#(),=+*0aF\t\x01") + text[i + rng.randrange(2):]


@text_kind
def cut_off(text, rng):
    return text[:rng.randrange(len(text))]
