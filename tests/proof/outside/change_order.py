"""Changes to waits, to issue order, and to lanes."""

from mutate import a_rank, an_ins, at, has_waits, kind, move, partner
from program import COLLECTIVES, RECVS, SENDS

# ---- waits ----

@kind
def wait_dropped(d, rng):
    x = an_ins(d, rng, has_waits)
    return bool(x) and x.waited.pop(rng.randrange(len(x.waited))) is not None


@kind
def waits_dropped(d, rng):
    x = an_ins(d, rng, has_waits)
    if x:
        x.waited = []
    return bool(x)


@kind
def waits_of_lane_dropped(d, rng):
    y = an_ins(d, rng, has_waits)
    for x in d.ranks[y.rank].ins if y else ():
        if x.lane == y.lane:
            x.waited = []
    return bool(y)


def neighbour_in_lane(d, w, step):
    lane = [x for x in d.ranks[w.rank].ins if x.lane == w.lane]
    i = lane.index(w) + step
    return lane[i] if 0 <= i < len(lane) else None


@kind
def wait_for_the_one_before(d, rng):
    x = an_ins(d, rng, has_waits)
    if not x:
        return False
    i = rng.randrange(len(x.waited))
    y = neighbour_in_lane(d, x.waited[i], -1)
    if y is None:
        return False
    x.waited[i] = y
    return True


@kind
def wait_for_the_one_after(d, rng):
    x = an_ins(d, rng, has_waits)
    if not x:
        return False
    i = rng.randrange(len(x.waited))
    y = neighbour_in_lane(d, x.waited[i], 1)
    if y is None:
        return False
    x.waited[i] = y
    return True


@kind
def wait_moved_along_lane(d, rng):
    x = an_ins(d, rng, has_waits)
    y = neighbour_in_lane(d, x, rng.choice((-1, 1))) if x else None
    if y is None:
        return False
    y.waited.append(x.waited.pop(rng.randrange(len(x.waited))))
    return True


@kind
def wait_for_another(d, rng):
    x = an_ins(d, rng, has_waits)
    if not x:
        return False
    others = [y for y in d.ranks[x.rank].ins[:at(d, x)] if y.lane != x.lane]
    if not others:
        return False
    x.waited[rng.randrange(len(x.waited))] = rng.choice(others)
    return True


@kind
def wait_added(d, rng):
    x = an_ins(d, rng)
    others = [y for y in d.ranks[x.rank].ins[:at(d, x)] if y.lane != x.lane]
    if others:
        x.waited.append(rng.choice(others))
    return bool(others)


@kind
def wait_for_later(d, rng):
    x = an_ins(d, rng)
    others = [y for y in d.ranks[x.rank].ins[at(d, x):] if y.lane != x.lane]
    if others:
        x.waited.append(rng.choice(others))
    return bool(others)


@kind
def wait_in_a_circle(d, rng):
    """Lets x wait for y, and an instruction before y in its lane wait for one after x. The issue order follows one
    wait."""
    x = an_ins(d, rng)
    rank = d.ranks[x.rank]
    others = [y for y in rank.ins if y.lane != x.lane]
    if not others:
        return False
    y = rng.choice(others)
    x.waited.append(y)
    z = neighbour_in_lane(d, x, 1) or x
    (neighbour_in_lane(d, y, -1) or y).waited.append(z)
    return True


@kind
def waits_swapped(d, rng):
    x = an_ins(d, rng, has_waits)
    if not x:
        return False
    ys = [y for y in d.ranks[x.rank].ins if y.lane == x.lane and y is not x]
    if not ys:
        return False
    y = rng.choice(ys)
    x.waited, y.waited = y.waited, x.waited
    return True


@kind
def wait_of_recv_for_send_of_same(d, rng):
    """Replaces a wait for an arrival by a wait for a message sent to that peer, as if sending were a rendezvous."""
    x = an_ins(d, rng, lambda x: any(w.op in RECVS for w in x.waited))
    if not x:
        return False
    i = next(i for i, w in enumerate(x.waited) if w.op in RECVS)
    before, peer = d.ranks[x.rank].ins[:at(d, x)], x.waited[i].peer
    ys = [y for y in before if y.op in SENDS and y.peer == peer and y.lane != x.lane]
    if not ys:
        return False
    x.waited[i] = ys[-1]
    return True


@kind
def waited_for_through_another_rank(d, rng):
    """Replaces x's wait for w by one for an arrival whose sender has heard from an instruction after w. Right, unless w
    is a message or a reduction: the other rank knows at most its start."""
    x = an_ins(d, rng, has_waits)
    if not x:
        return False
    rank, i = d.ranks[x.rank], rng.randrange(len(x.waited))
    w = x.waited[i]
    before = rank.ins[:at(d, x)]
    if w not in before:
        return False
    behind = before[before.index(w):]
    ways = []
    for s in behind:
        if s.op in COLLECTIVES:
            others = [q for q in rank.lanes[s.lane][1] if q != x.rank]
            rs = [y for q in others for y in d.ranks[q].ins if (y.op, y.s, y.inst) == (s.op, s.s, s.inst)]
        else:
            rs = [partner(d, s)] if s.op in SENDS else []
        for r in rs:
            if r is None:
                continue
            other = d.ranks[r.rank].ins
            for z in other[other.index(r):]:
                y = partner(d, z) if z.op in SENDS and z.peer == x.rank else None
                if y in before and before.index(y) > before.index(s) and y.lane != x.lane:
                    ways.append((s, r, z, y))
    if not ways:
        return False
    s, r, z, y = rng.choice(ways)
    if s is not w and s.lane != w.lane and w not in s.waited:
        s.waited.append(w)
    if r.lane != z.lane and r not in z.waited:
        z.waited.append(r)
    x.waited[i] = y
    return True


# ---- order ----

@kind
def issue_neighbours_swapped(d, rng):
    ins = a_rank(d, rng).ins
    i = rng.randrange(len(ins)) if len(ins) > 1 else 0
    if not i:
        return False
    ins[i - 1], ins[i] = ins[i], ins[i - 1]
    return True


@kind
def issue_moved(d, rng):
    x = an_ins(d, rng)
    rank = d.ranks[x.rank]
    move(rank, x, at(d, x) + rng.choice((-8, -5, -4, -3, -2, 2, 3, 4, 5, 8)))
    return True


@kind
def issued_as_early_as_its_lane_and_waits_allow(d, rng):
    x = an_ins(d, rng)
    rank, i = d.ranks[x.rank], at(d, x)
    j = i
    while j > 0 and rank.ins[j - 1].lane != x.lane and rank.ins[j - 1] not in x.waited:
        j -= 1
    if j == i:
        return False
    move(rank, x, rng.randint(j, i - 1))
    return True


@kind
def issued_as_late_as_its_lane_and_waits_allow(d, rng):
    x = an_ins(d, rng)
    rank, i = d.ranks[x.rank], at(d, x)
    j = i
    while j + 1 < len(rank.ins) and rank.ins[j + 1].lane != x.lane and x not in rank.ins[j + 1].waited:
        j += 1
    if j == i:
        return False
    move(rank, x, rng.randint(i + 1, j))
    return True


@kind
def issue_reversed(d, rng):
    ins = a_rank(d, rng).ins
    if len(ins) < 3:
        return False
    i = rng.randrange(len(ins) - 2)
    ins[i:i + 3] = ins[i:i + 3][::-1]
    return True


@kind
def lane_neighbours_swapped(d, rng):
    x = an_ins(d, rng)
    y = neighbour_in_lane(d, x, 1)
    if y is None:
        return False
    ins = d.ranks[x.rank].ins
    i, j = ins.index(x), ins.index(y)
    ins[i], ins[j] = y, x
    return True


@kind
def messages_swapped_at_both_ends(d, rng):
    x = an_ins(d, rng, lambda x: x.op in SENDS)
    y = neighbour_in_lane(d, x, 1) if x else None
    a, b = partner(d, x), partner(d, y)
    if not a or not b or y.peer != x.peer:
        return False
    for u, v in ((x, y), (a, b)):
        ins = d.ranks[u.rank].ins
        i, j = ins.index(u), ins.index(v)
        ins[i], ins[j] = v, u
    return True


@kind
def update_moved(d, rng):
    x = an_ins(d, rng, lambda x: x.op == "U")
    if not x:
        return False
    move(d.ranks[x.rank], x, at(d, x) - rng.randint(1, 8))
    return True


@kind
def weights_sent_later(d, rng):
    """Moves a SERVE to the end, perhaps after the update, and its FETCH perhaps later."""
    x = an_ins(d, rng, lambda x: x.op == "SERVE")
    y = partner(d, x)
    if not y:
        return False
    rank = d.ranks[x.rank]
    move(rank, x, len(rank.ins))
    if rng.random() < 0.5:
        for u in rank.ins:
            if x in u.waited:
                u.waited.remove(x)
        x.waited = [u for u in rank.ins if u.op == "U" and u.s == x.s]
    if rng.random() < 0.5:
        move(d.ranks[y.rank], y, at(d, y) + rng.randint(0, 4))
    return True


@kind
def message_moved_at_both_ends(d, rng):
    x = an_ins(d, rng, lambda x: x.op in SENDS)
    y = partner(d, x)
    if not y:
        return False
    by = rng.choice((-3, -2, -1, 1, 2, 3))
    move(d.ranks[x.rank], x, at(d, x) + by)
    move(d.ranks[y.rank], y, at(d, y) + by)
    return True


# ---- lanes ----

def merge(rank, gone, into, name):
    for x in rank.ins:
        if x.lane in gone:
            x.lane = into
    rank.lanes[into] = name
    for x in rank.ins:
        x.waited = [w for w in x.waited if w.lane != x.lane]
    remap, lanes = {}, []
    for l, lane in enumerate(rank.lanes):
        if l not in gone or l == into:
            remap[l] = len(lanes)
            lanes.append(lane)
    rank.lanes = lanes
    for x in rank.ins:
        x.lane = remap[x.lane]


@kind
def lanes_joined(d, rng):
    rank = a_rank(d, rng)
    comm = [l for l, (k, _) in enumerate(rank.lanes) if k in ("send", "recv", "peer")]
    if len(comm) < 2:
        return False
    if rng.random() < 0.5:
        merge(rank, comm, comm[0], ("messages", ()))
        return True
    peer = rng.choice([rank.lanes[l][1] for l in comm if rank.lanes[l][0] != "peer"] or [None])
    both = [l for l in comm if rank.lanes[l][1] == peer]
    if len(both) < 2:
        return False
    merge(rank, both, both[0], ("peer", peer))
    return True


@kind
def lanes_split(d, rng):
    ranks = [rank for rank in d.ranks if any(k in ("peer", "messages") for k, _ in rank.lanes)]
    if not ranks:
        return False
    rank = rng.choice(ranks)
    l = next(l for l, (k, _) in enumerate(rank.lanes) if k in ("peer", "messages"))
    new = []
    for x in rank.ins:
        if x.lane == l:
            key = ("send" if x.op in SENDS else "recv", (x.peer,))
            if key not in new:
                new.append(key)
            x.lane = -1 - new.index(key)
    for x in rank.ins:
        x.lane = len(rank.lanes) - 1 - x.lane if x.lane < 0 else x.lane
    rank.lanes += new
    last = len(rank.lanes)
    rank.lanes.pop(l)
    for x in rank.ins:
        x.lane -= x.lane > l
    return last > l


@kind
def everything_on_rank_waits_for_the_one_before(d, rng):
    """Serializes one rank: right, if a little slow, unless one wait is dropped."""
    rank = a_rank(d, rng)
    skip = rng.choice([None] * 2 + list(range(len(rank.ins))))
    for i in range(1, len(rank.ins)):
        x, w = rank.ins[i], rank.ins[i - 1]
        x.waited = [w] if w.lane != x.lane and i != skip else []
    return True
