"""A second opinion on `pianola verify`: is a program, in its text form, right on the machine "start-end"?

Written from the descriptions of the machine and of the text form alone (now compiler/proof.md and
compiler/text-form.md), and from runtime/ops.h. It shares nothing with the compiler. judge(text) returns two lists:

  wrong   errors in some run of that machine, and breaches of a claim of compiler/proof.md. If verify says proved and this
          list is not empty, one of the two is mistaken.
  strict  harmless deviations from the text form: a buffer that is written and never read, a message named for another
          tensor than it carries, or an operand that nobody needs. verify may refuse them or not.

One serial walk of all ranks, an instruction at a time with every send blocking, gives every buffer its value
(values.py). The events S(x) and E(x) in the walk's order form a graph, whose ancestors are bitsets. Two conflicting
accesses must be ordered E -> S. In an execution without races, each read gets what the walk gave it, so one order's
values are the values of every order.

player.py tests that second claim: it plays random runs of the machine on symbolic bytes.
"""

from collections import Counter

from members import disorder
from program import ACCESS, COLLECTIVES, JOBS, RECV_OF, RECVS, ROOTED, SENDS, TEAM, Unreadable, read
from unroll import unrolled
from values import Values


# ---- the serial walk ----

def named(p, x):
    """Returns a collective's name, with the first member's stage: each member of a team has its own."""
    return (x.s if x.op not in TEAM or p.teams is None else p.teams.first_of(x.s), x.b, x.inst, x.peer)


def walk(p):
    """Returns the steps of the serial walk, a list of (instruction,), (send, recv) and (reduce, ...), or None if it
    hangs."""
    at, steps = [0] * p.workers, []
    todo = set(range(p.workers))
    cur = lambda q: p.ranks[q].ins[at[q]] if at[q] < len(p.ranks[q].ins) else None
    while todo:
        r = todo.pop()
        x = cur(r)
        if x is None:
            continue
        if x.op in SENDS or x.op in RECVS:
            if x.peer == r:
                p.wrong.append(f"serial: {x} to itself")
                return None
            y = cur(x.peer)
            if y is None or y.peer != r or not (x.op in SENDS and y.op in RECVS or x.op in RECVS and y.op in SENDS):
                continue
            step = (x, y) if x.op in SENDS else (y, x)
            if (RECV_OF[step[0].op], x.s, x.b, x.inst) != (step[1].op, y.s, y.b, y.inst):
                p.wrong.append(f"order: {step[0]} meets {step[1]}")
        elif x.op in COLLECTIVES:
            group = p.ranks[r].lanes[x.lane]
            step = tuple(cur(q) for q in group[1])
            if any(y is None or y.op not in COLLECTIVES or p.ranks[y.rank].lanes[y.lane] != group for y in step):
                continue
            if len({y.op for y in step}) > 1:
                p.wrong.append("order: " + " meets ".join(map(str, step)))
                return None
            if len({named(p, y) for y in step}) > 1:
                p.wrong.append("order: " + " meets ".join(map(str, step)))
            if len({y.by for y in step}) > 1:
                p.strict.append(f"{x}: by different algorithms")  # none of our transports chooses its algorithm by that
            if x.op in ROOTED and x.peer not in group[1]:
                p.wrong.append(f"order: the root of {x} is no member")
        else:
            step = (x,)
        for y in step:
            if any(w.n >= y.n for w in y.waited):
                p.wrong.append(f"serial: {y} waits for what is issued later")
                return None
        steps.append(step)
        for y in step:
            at[y.rank] += 1
            todo.add(y.rank)
    stuck = [str(cur(q)) for q in range(p.workers) if cur(q)]
    if stuck:
        p.wrong.append("serial: deadlock at " + "; ".join(stuck))
        return None
    return steps


# ---- what holds in any order ----

def plan(p):
    sizes, opts = {}, set()
    p.sizes = sizes
    for r, rank in enumerate(p.ranks):
        used = {a[2] for x in rank.ins for a in x.args}
        for b in rank.bufs.values():
            key = (b.kind, b.s) if not p.slices or b.b is None else (b.kind, b.s, b.b % p.slices)  # slices may differ
            if b.kind not in ("work", "token", "mid") and sizes.setdefault(key, b.size) != b.size:
                p.wrong.append(f"sizes: {b.name} on rank {r}")
            if b.name not in used and b.kind != "work":
                p.strict.append(f"rank {r}: {b.name} is unused")
            if b.grows and (rank.bufs[b.grows].kind != "wstash" or b.kind not in ("stash", "rstash")):
                p.strict.append(f"rank {r}: {b.name} grows")
        for x in rank.ins:
            if x.op == "U":
                w = rank.bufs.get(rank.places[x.s].weight)
                if w and w.size:
                    opts.add(any(a[0] == "opt" for a in x.args))
            if len({a[2:] for a in x.args}) < len(x.args) and x.op not in COLLECTIVES:
                p.strict.append(f"{x}: a buffer twice")
    for s in range(p.sets):  # shards, if no rank has all of it
        at = p.ranks[0].places[s]
        for of, kind, share in (("weight", "wshard", at.length), ("wgrad", "gshard", at.length), ("wgrad", "gown", at.own)):
            if (kind, s) in sizes:
                sizes.setdefault((of, s), sizes[kind, s] / share)
    for s, table in p.tables.items():
        own, its = (p.homes[s], p.homes[table]) if p.homes else (None, None)
        if own and s not in p.bare and p.embeds(s) and (own.lists, own.zero) != (its.lists, its.zero):
            p.strict.append("the table's homes are not those of stage 0")
    for shared in set(p.shared.values()) - p.bare if p.homes else ():
        members = [s for s in p.shared if p.shared[s] == shared]
        lists = {tuple(one) for s in members for one in p.homes[s].lists}
        if not p.bare & set(members) and lists != set(map(tuple, p.homes[shared].lists)):
            p.strict.append("the homes of what a team shares are not those of its members")
    if len(opts) > 1:
        p.strict.append("some updates have an optimizer's state, and some have none")


# ---- races ----

def accesses(x):
    """Yields (buffer, piece, whether it is read, whether it is written) for every operand."""
    in_place = x.op == "REDUCE_SCATTER" and len({a[2] for a in x.args}) < len(x.args)  # leaves garbage in the rest
    for role, adds, name, piece in x.args:
        how = ACCESS[x.op][role]
        reads = how != "w" and not (how == "a" and not adds) or how != "r" and (name, piece) in x.again
        yield name, piece, reads, how != "r" or in_place


def reached(x, y):
    """Returns whether data of member x of a collective, or of a message, reach y."""
    if x is y or x.op in RECVS:
        return x is y
    if x.op == "BROADCAST":
        return x.rank == x.peer
    return x.op != "REDUCE" or y.rank == y.peer


def meet(rank, one, other):
    """Returns whether two pieces share bytes, or share a place in one buffer of nothing."""
    a, b = rank.bufs[one[0]], rank.bufs[other[0]]
    (i, n), (j, m) = one[1], other[1]
    if a is b:
        return i * m < (j + 1) * n and j * n < (i + 1) * m
    begin, end = a.off + a.size // n * i, a.off + a.size // n * (i + 1)
    start, stop = b.off + b.size // m * j, b.off + b.size // m * (j + 1)
    return a.on_host() == b.on_host() and begin < stop and start < end and a.size > 0 and b.size > 0


def ancestors(p, steps):
    """Returns the ancestors. Bit 2n of anc[e]: S of the walk's n-th instruction precedes event e; bit 2n + 1: its E
    does."""
    number, anc, last, n = {}, [], {}, 0
    for step in steps:
        for x in step:
            number[x] = n
            before = 0
            for y in ([last[x.rank, x.lane]] if (x.rank, x.lane) in last else []) + x.waited:
                e = 2 * number[y] + 1
                before |= anc[e] | 1 << e
            anc += [before, None]
            last[x.rank, x.lane] = x
            n += 1
        for x in step:
            before = 0
            for s in [2 * number[y] for y in step if reached(y, x)]:
                before |= anc[s] | 1 << s
            anc[2 * number[x] + 1] = before
    return number, anc


def races(p, steps):
    number, anc = ancestors(p, steps)
    for rank in p.ranks:
        pieces = {(name, piece) for x in rank.ins for name, piece, _, _ in accesses(x)}
        near = {one: [other for other in pieces if meet(rank, one, other)] for one in pieces}
        wrote, touched = Counter(), Counter()
        for x in rank.ins:
            before, mine = anc[2 * number[x]], []
            for name, piece, _, writes in accesses(x):
                met = 0
                for other in near[name, piece]:
                    met |= touched[other] if writes else wrote[other]
                if met & ~before:
                    last = ((met & ~before).bit_length() - 2) // 2  # bit 2n + 1 is E of instruction n
                    y = next(y for y in rank.ins if number[y] == last)
                    p.wrong.append(f"race: {y} and {x} at {name}")
                mine.append(((name, piece), writes))
            for one, writes in mine:
                touched[one] |= 2 << 2 * number[x]
                if writes:
                    wrote[one] |= 2 << 2 * number[x]
    if p.needs:
        first, last = {}, {}  # each job's first and last part
        for x in number:
            if x.op in JOBS:
                first.setdefault((x.op, x.s, x.b), x)
                last[x.op, x.s, x.b] = x
        for job, preds in p.needs.items():
            for q in preds:
                if job in first and (q not in last or not anc[2 * number[first[job]]] >> 2 * number[last[q]] + 1 & 1):
                    p.wrong.append(f"needs: {job} is not after {q}")


def judge(text):
    """Returns (wrong, strict, program, steps); raises Unreadable. A period runs once, twice and three times; deviations
    from the text form count once."""
    p = readable(text)
    if not p.period:
        return judge_straight(text)
    late = [f"serial: {x} waits for what is issued later" for rank in p.ranks for x in rank.ins
            if any(w.n >= x.n for w in x.waited)]
    if late:
        return late, [], p, None
    wrong, strict, once, steps = judge_straight(unrolled(p, 1))
    for times in 2, 3:
        try:
            longer = unrolled(p, times) if not wrong else None
            wrong = [f"{times} times: {why}" for why in judge_straight(longer)[0]] if longer else wrong
        except Unreadable as e:  # a job runs twice, or a tensor lies in two places
            wrong = [f"{times} times: {e}"]
    if steps:
        strict += crossings(p, steps)
    return wrong, strict, once, steps


def crossings(p, steps):
    """Reports waits and messages that cross a mark. p: as read; steps: the period's steps in one repetition, in
    order."""
    section = lambda x: p.ranks[x.rank].ins[x.n].section
    out = [f"{x}: waits across a mark" for rank in p.ranks for x in rank.ins if any(w.section != x.section for w in x.waited)]
    return out + [f"{step[0]}: its ends are in different sections" for step in steps if len({section(x) for x in step}) > 1]


def readable(text):
    try:
        return read(text)
    except (ValueError, IndexError) as e:  # from int(), or from lines that do not exist
        raise Unreadable(str(e)) from e


def judge_straight(text):
    p = readable(text)
    plan(p)
    if 2 * p.stages * p.batches > sum(len(rank.ins) for rank in p.ranks):
        p.wrong.append("jobs: there are more than instructions")
        return p.wrong, p.strict, p, None
    steps = walk(p)
    if steps is not None:
        Values(p).run(steps)
        p.wrong += [] if p.wrong else disorder(p, steps)
        races(p, steps)
    return p.wrong, p.strict, p, steps
