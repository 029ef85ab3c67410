"""The contents of every buffer along the serial walk of checker.py, and the result of each instruction.

A buffer's contents are stretches (begin, end, value), in fractions of the tensor. A value is a term: ("act", at, s, b),
("weight", at, s, updates), ("opt", at, s, updates), or for a gradient ("sum", ((at, whose gradient, stage, microbatch),
count), …), the count of each contribution. Place z of the buffer holds place z + at of the term's tensor: a shard at
home begins with at > 0, and a gathered tensor is one stretch again. ("begun", at, s, b) is garbage that a later part of
the job completes. A part gives ("share", at, s, b, direction, part) to its team; sums of these are ordinary sums. A
norm is ("norm", 0, parts): the count of each part of a set, (set, begin), whose gradient was complete.
"""

from collections import Counter
from fractions import Fraction

from program import COLLECTIVES, GATHERS, HOST_COPIES, JOBS, OFFLOADS, ROOTED, SENDS, TEAM, persists
from ranges import ranges_wrong


def moved(value, by):
    """Returns the value at z + by, given the one at z."""
    if value is None or not by:
        return value
    if value[0] == "sum":
        return ("sum", *sorted(((at - by, *of), n) for (at, *of), n in value[1:]))
    return (value[0], value[1] - by, *value[2:])


def plus(a, b):
    """Returns the sum of two gradients; any other term adds garbage that no gradient has."""
    total = Counter()
    for value in a, b:
        total.update(dict(value[1:]) if value and value[0] == "sum" else {(Fraction(0), -1, -1, -1): 1})
    return ("sum", *sorted(total.items()))


def share_sum(value):
    """Returns what a member adds to a sum of its team."""
    return ("sum", ((value[1], *value[2:]), 1)) if value and value[0] == "share" else ("sum", ((Fraction(0), -1), 1))


def joined(stretches):
    out = []
    for begin, end, value in stretches:
        if out and out[-1][2] == value and out[-1][1] == begin:
            out[-1] = (out[-1][0], end, value)
        else:
            out.append((begin, end, value))
    return out


def cut(stretches, begin, end):
    """Returns the stretches from begin to end, moved to 0."""
    out = [(max(a, begin) - begin, min(b, end) - begin, moved(v, -begin)) for a, b, v in stretches
           if a < end and begin < b]
    return joined(out)


def scaled(stretches, by):
    return [(y * by, z * by, v) for y, z, v in stretches]


def zipped(a, b, f):
    borders = sorted({z for x in (a, b) for stretch in x for z in stretch[:2]})
    value = lambda x, z: next((v for begin, end, v in x if begin <= z < end), None)
    return joined([(y, z, f(value(a, y), value(b, y))) for y, z in zip(borders, borders[1:])])


def garbage(value):
    return value is None or value[0] == "begun"


ZERO, WHOLE = ("sum",), Fraction(0)


class Values:
    """The contents of all ranks' buffers along the serial walk."""

    def __init__(self, p):
        self.p, self.live, self.updates, self.versions = p, [], Counter(), {}
        self.made = Counter()  # jobs
        self.sums = {}  # content of a gradient's piece before a job in parts changes it
        for r, rank in enumerate(p.ranks):
            live = {}
            for b in rank.bufs.values():
                if persists(rank, b):
                    at = rank.places[b.s].begin if b.s is not None else None
                    kind = {"wshard": "weight", "hopt": "opt"}.get(b.kind, b.kind)
                    value = {"weight": ("weight", at, b.s, 0), "opt": ("opt", Fraction(0), b.s, 0)}.get(kind)
                    live[b.name] = [(Fraction(0), self.extent(r, b.name), value)]
            self.live.append(live)
            for b in live:
                self.room(r, b, f"rank {r} at the start")

    def plus(self, a, b):
        return plus(a, b)

    def extent(self, r, name):
        """Returns the fraction of its tensor for which a buffer has room."""
        b = self.p.ranks[r].bufs[name]
        if b.kind in ("wshard", "gshard"):
            return self.p.ranks[r].places[b.s].length
        return self.p.ranks[r].places[b.s].own if b.kind == "gown" else Fraction(1)

    def span(self, x, a):
        """Returns begin and end of an operand in its buffer."""
        i, n = a[3]
        e = self.extent(x.rank, a[2])
        return e * i / n, e * (i + 1) / n

    def bad(self, x, why):
        self.p.wrong.append(f"{x}: {why}")

    def hint(self, x, why):
        self.p.strict.append(f"{x}: {why}")

    def room(self, r, name, x, but=None):
        b, bufs = self.p.ranks[r].bufs[name], self.p.ranks[r].bufs
        if b.off < 0:
            self.bad(x, f"{name} has no place")
        elif b.size:
            for other in self.live[r]:
                o = bufs[other]
                meet = o.size and 0 <= o.off < b.off + b.size and b.off < o.off + o.size and o.on_host() == b.on_host()
                if other != name and other != but and meet:
                    self.bad(x, f"overlap: {name} and {other}")

    def read(self, x, a):
        """Returns the operand's stretches, from 0 on."""
        name, (begin, end) = a[2], self.span(x, a)
        if name not in self.live[x.rank]:
            self.bad(x, f"reads {name}, not written or freed")
            return [(Fraction(0), end - begin, None)]
        v = cut(self.live[x.rank][name], begin, end)
        if any(garbage(stretch[2]) for stretch in v) and not name.startswith("work"):
            self.bad(x, f"reads {name}, never written, or garbage")
        return v

    def write(self, x, a, stretches, but=None):
        live, name, (begin, end) = self.live[x.rank], a[2], self.span(x, a)
        self.fits(x, a, stretches)
        if not stretches or stretches[-1][1] != end - begin:
            self.bad(x, f"puts {stretches} into {name}, of another size")
            stretches = [(Fraction(0), end - begin, None)]
        if name not in live:
            live[name] = [(Fraction(0), self.extent(x.rank, name), None)]
            self.room(x.rank, name, x, but)
        old = live[name]
        in_place = x.op in ("U", "ALL_REDUCE", "ALL_REDUCE_A", "ZERO", "OFFLOAD_O")
        in_place = in_place or x.op in COLLECTIVES and len({o[2] for o in x.args}) == 1
        if any(not garbage(s[2]) for s in cut(old, begin, end)) and not in_place and not a[1]:
            self.hint(x, f"overwrites {name}")
        live[name] = joined([(y, min(z, begin), v) for y, z, v in old if y < begin] +
                            [(y + begin, z + begin, moved(v, begin)) for y, z, v in stretches] +
                            [(max(y, end), z, v) for y, z, v in old if end < z])

    def fits(self, x, a, stretches):
        """A tensor of a kind and stage has one size, the size of the buffers named for it."""
        b = self.p.ranks[x.rank].bufs[a[2]]
        if b.kind == "work":
            self.bad(x, "puts a tensor into the workspace")
        room = Fraction(b.size, a[3][1])
        for begin, end, value in stretches:
            if value is None or value == ZERO or b.kind == "mid":
                continue
            of = {k[1] for k, _ in value[1:]} if value[0] == "sum" else {value[2]}
            key = ("wgrad" if value[0] == "sum" else value[0], of.pop()) if len(of) == 1 else None
            if key is None or key[0] == "token" or key not in self.p.sizes:
                continue
            share = room * (end - begin) / stretches[-1][1]
            if share < self.p.sizes[key] * (end - begin):
                self.bad(x, f"puts {key} of {self.p.sizes[key]} bytes into {a[2]}")
            elif share > self.p.sizes[key] * (end - begin):
                self.hint(x, f"{a[2]} is larger than {key}")

    def free(self, x):
        rank = self.p.ranks[x.rank]
        for name in x.frees:
            b = rank.bufs[name]
            if persists(rank, b):
                stays = b.kind not in ("wgrad", "gshard", "gown")
                (self.bad if stays else self.hint)(x, f"frees {name}, which stays")
                if stays:
                    continue
            elif name not in (a[2] for a in x.args):
                self.hint(x, f"frees {name}, which it does not use")
            if name in self.live[x.rank]:
                del self.live[x.rank][name]
            else:
                self.bad(x, f"frees {name}, which is not live")

    def contribute(self, x, role, s):
        """Checks dw or dv of a job: the whole gradient, perhaps in pieces. The last part that names a piece completes
        it."""
        parts = self.parts[x.rank, x.op, x.s, x.b]
        pieces = {a[2:]: self.span(y, a) for y in parts for a in self.operand(y, role)}
        self.cover(x, role, sorted(pieces.values()))
        why = ranges_wrong(self.p, x, parts) if role == "dw" and x is parts[-1] else None
        if why:
            self.bad(x, why)
        mine = [(Fraction(0), Fraction(1), ("sum", ((Fraction(0), s, x.s, x.b), 1)))]
        for a in self.operand(x, role):
            size = self.p.sizes.get(("wgrad", s))
            if size is not None and self.p.ranks[x.rank].bufs[a[2]].size < size:
                self.bad(x, f"puts a gradient of {size} bytes into {a[2]}")
            named = [y for y in parts if any(o[2:] == a[2:] for o in self.operand(y, role))]
            if any(o[2:] == a[2:] and o[1] != a[1] for y in named for o in self.operand(y, role)):
                self.bad(x, f"one part writes {a[2]} and another adds to it")
            begin, end = self.span(x, a)
            if x is named[0]:
                self.sums[x.rank, a[2:]] = self.read(x, a) if a[1] else [(Fraction(0), end - begin, ZERO)]
            else:
                self.still_begun(x, a)
            if x is named[-1]:
                self.write(x, a, zipped(self.sums[x.rank, a[2:]], cut(mine, begin, end), self.plus))
            else:
                self.write(x, a, [(Fraction(0), end - begin, ("begun", WHOLE, x.s, x.b))])

    def cover(self, x, role, spans):
        """Checks that it is a whole gradient, with nothing twice."""
        borders = [z for span in spans for z in span]
        if not spans or borders[0] != 0 or borders[-1] != 1 or borders[1:-1:2] != borders[2:-1:2]:
            self.bad(x, f"its {role} is not all of its gradient once")

    def still_begun(self, x, a):
        """Checks that what another part has begun is still as that part left it."""
        begin, end = self.span(x, a)
        got = cut(self.live[x.rank].get(a[2], [(begin, end, None)]), begin, end)
        if got != [(Fraction(0), end - begin, ("begun", WHOLE, x.s, x.b))]:
            self.bad(x, f"{a[2]} is {got}, not what the part before left there")

    def add(self, x, a, stretches):
        """Computes dw = or dw +=."""
        if a[1]:
            stretches = zipped(self.read(x, a), stretches, self.plus)
        self.write(x, a, stretches)

    def operand(self, x, role):
        return [a for a in x.args if a[0] == role]

    def expect(self, x, role, values):
        """Checks that the role's operands hold exactly these whole tensors."""
        got = [self.read(x, a) for a in self.operand(x, role)]
        if sorted(map(str, got)) != sorted(str([(Fraction(0), Fraction(1), v)]) for v in values):
            self.bad(x, f"{role} is {got}, not {values}")

    def put(self, x, role, value, but=None):
        operands = self.operand(x, role)
        parts = self.parts[x.rank, x.op, x.s, x.b]
        for a in operands:
            if x is not parts[0]:
                self.still_begun(x, a)
            done = x is parts[-1]
            self.write(x, a, [(Fraction(0), Fraction(1), value if done else ("begun", WHOLE, x.s, x.b))], but)
        return operands

    def follow(self):
        """Checks that the parts of a job follow one another in its rank's compute lane, with no job between them, and
        name the same operands except for pieces of dw."""
        for rank in self.p.ranks:
            jobs = [x for x in rank.ins if x.op in JOBS]
            for x in jobs:
                self.parts.setdefault((x.rank, x.op, x.s, x.b), []).append(x)
            shared = lambda x: [a for a in x.args if a[0] not in ("dw", "give", "got")]
            name = lambda x, by: (x.op, x.s, x.b, x.part[0] + by, x.part[1])
            for x, before, after in [row for space in self.spaces(jobs)
                                     for row in zip(space, [None] + space, space[1:] + [None])]:
                i, n = x.part
                if i > 0 and (before is None or name(before, 1) != name(x, 0)):
                    self.bad(x, "is not next behind the part before")
                elif i > 0 and shared(before) != shared(x):
                    self.bad(x, "has other operands than the part before")
                if i < n - 1 and (after is None or name(after, -1) != name(x, 0)):
                    self.bad(x, "the part behind it is not next")

    def spaces(self, jobs):
        """Returns the jobs that use the rank's first workspace, and those that use its second one."""
        apart = lambda x: any(a[2] != "work" for a in self.operand(x, "work"))
        return [x for x in jobs if not apart(x)], [x for x in jobs if apart(x)]

    def preds(self, x):
        p = self.p
        if p.needs is not None:
            return p.needs.get((x.op, x.s, x.b))
        if p.teams is not None:
            before, behind = p.teams.before(x.s), p.teams.behind(x.s)
            if x.op == "F":
                return [("F", before, x.b)] if before is not None else []
            return [(d, behind, x.b) for d in "BI" if x.op in "BI" and (d, behind, x.b) in self.jobs]
        if x.op == "F":
            return [("F", x.s - 1, x.b)] if x.s else []
        if x.op in "BI":
            return [(d, x.s + 1, x.b) for d in "BI" if (d, x.s + 1, x.b) in self.jobs]
        return []

    def slices(self, x):
        """Checks keys and values of other slices: a job reads what earlier forwards made, and a backward its own, too."""
        p = self.p
        if not p.slices or x.s not in p.attends:
            for role in ("kv", "own", "dkv", "dpast"):
                if self.operand(x, role):
                    self.bad(x, f"has {role}, but no other slice's keys and values matter")
            return
        back = x.op in "IB"
        first = x.b - x.b % p.slices
        wanted = [("kv", WHOLE, x.s, b) for b in range(first, x.b + back)]
        got = [self.read(x, a) for a in self.operand(x, "kv")]
        if got != [[(Fraction(0), Fraction(1), v)] for v in wanted]:  # in this order, which distinguishes them
            self.bad(x, f"kv is {got}, not {wanted}")
        last = x.b % p.slices == p.slices - 1
        if back:
            self.expect(x, "dkv", [] if last else [("dkv", WHOLE, x.s, x.b + 1)])
        if x.op == "F":
            self.put(x, "own", ("kv", WHOLE, x.s, x.b))
        if back:
            self.put(x, "dpast", ("dkv", WHOLE, x.s, x.b))
        if p.needs is not None:
            needed = [("F", x.s, b) for b in range(first, x.b + back)]
            needed += [(d, x.s, x.b + 1) for d in "BI" if back and not last and (d, x.s, x.b + 1) in self.jobs]
            for q in needed:
                if q not in p.needs.get((x.op, x.s, x.b), []):
                    self.bad(x, f"does not need {q}")

    def weights(self, x):
        p = self.p
        for role in "wvu":
            s = p.set_of(x.op, x.s, role)
            self.expect(x, role, [] if s is None else [("weight", WHOLE, s, 0 if role == "v" else x.version or 0)])
        first = x.s if p.teams is None else p.teams.first_of(x.s)
        if self.versions.setdefault((x.op, first, x.b), x.version) != x.version:  # a team computes one job together
            self.bad(x, "reads another version than another member of its team")

    def job(self, x):
        p = self.p
        preds = self.preds(x)
        if preds is None:
            self.bad(x, "not a job of the graph")
            preds = []
        for t in self.operand(x, "t"):
            v = self.read(x, t)[0][2]
            if v is None or v[0] != "token":
                self.hint(x, f"t={t[2]} is no token")
        if x.op in "FRIB":
            self.weights(x)
            self.slices(x)
        self.exchange_of_part(x)
        if x.op == "F":
            self.expect(x, "x", [("act", WHOLE, s, b) for d, s, b in preds if d == "F" and b == x.b and s != x.s])
            kept = self.put(x, "stash", ("stash", WHOLE, x.s, x.b)) + self.put(x, "input", ("input", WHOLE, x.s, x.b))
            self.put(x, "y", ("act", WHOLE, x.s, x.b))
            if len(kept) != 1:
                self.hint(x, "keeps " + str(kept))
        elif x.op == "R":
            self.expect(x, "input", [("input", WHOLE, x.s, x.b)])
            self.put(x, "stash", ("stash", WHOLE, x.s, x.b))
        elif x.op in "IB":
            self.expect(x, "stash", [("stash", WHOLE, x.s, x.b)])
            self.expect(x, "dy", [("grad", WHOLE, s, b) for d, s, b in preds if d in "BI" and b == x.b and s != x.s])
            if x.op == "I":
                self.grow(x)
            self.put(x, "dx", ("grad", WHOLE, x.s, x.b))
        else:
            self.expect(x, "wstash", [("wstash", WHOLE, x.s, x.b)])
        if x.op in "BW":
            for role in ("dw", "dv", "du"):
                s = p.set_of(x.op, x.s, role)
                if s is not None:
                    self.contribute(x, role, s)
                elif self.operand(x, role):
                    self.bad(x, f"has a {role}, but no such gradient")
        self.put(x, "done", ("token", WHOLE, x.s, x.b, JOBS.index(x.op)))

    # ---- teams ----

    def exchange_of_part(self, x):
        """Checks shares: a part gives its own, and gets what its team has made of the earlier parts' shares."""
        ops = self.p.teams.exchange[x.s].get(x.op, ()) if self.p.teams else ()
        i, n = x.part
        if ops and n != len(ops) + 1:
            self.bad(x, f"{n} parts, and {len(ops)} exchanges between them")
        gives, gets = self.operand(x, "give"), self.operand(x, "got")
        source = [e for e, (op, late) in enumerate(ops) if op and e + 1 + late == i]
        if bool(gives) != (i < len(ops) and ops[i][0] is not None) or bool(gets) != bool(source):
            self.bad(x, "gives or gets what its place does not say")
        for a in self.operand(x, "work"):
            if a[2] not in ("work", "work#1"):
                self.bad(x, f"works in {a[2]}")
        if gets and source:
            got, want = self.read(x, gets[0]), self.exchanged(x, source[0], ops[source[0]][0])
            if got != want:
                self.bad(x, f"gets {got}, not {want}")
        for a in gives:
            if self.p.ranks[x.rank].bufs[a[2]].kind != "mid":
                self.bad(x, f"gives {a[2]}")
            self.write(x, a, [(Fraction(0), Fraction(1), ("share", WHOLE, x.s, x.b, x.op, i))])

    def exchanged(self, x, i, op):
        first, size = self.p.teams.first_of(x.s), self.p.teams.size(x.s)
        shares = [[(Fraction(0), Fraction(1), ("share", WHOLE, first + m, x.b, x.op, i))] for m in range(size)]
        return self.of_team(op, shares, x.s - first)

    def of_team(self, op, shares, me):
        """Returns what member `me` gets from these shares, each from 0 to 1, as stretches from 0 to 1."""
        n = len(shares)
        if op in ("ALL_REDUCE_A", "REDUCE_SCATTER_A"):
            total = [(Fraction(0), Fraction(1), ZERO)]
            for share in shares:
                total = zipped(total, [(y, z, share_sum(v)) for y, z, v in share], self.plus)
            return total if op == "ALL_REDUCE_A" else scaled(cut(total, Fraction(me, n), Fraction(me + 1, n)), n)
        if op == "ALL_GATHER_A":
            return joined([(y / n + Fraction(j, n), z / n + Fraction(j, n), ("piece", WHOLE, v, 0)) for j, share in
                           enumerate(shares) for y, z, v in share])
        return joined([(y + Fraction(j, n), z + Fraction(j, n), ("piece", WHOLE, v, me)) for j, share in enumerate(shares)
                       for y, z, v in cut(share, Fraction(me, n), Fraction(me + 1, n))])

    def team_collective(self, step):
        """Checks an exchange over all members of a team, in the order of their places, on what their parts have
        given."""
        p, op, n = self.p, step[0].op, len(step)
        if any(p.teams is None or p.teams.size(x.s) != n or x.s - p.teams.first_of(x.s) != m for m, x in enumerate(step)):
            return self.bad(step[0], "its ranks are not the members of its stage in their order")
        for x in step:
            numbers = p.teams.numbers(x.s)
            if x.inst is None or x.inst % 2 or x.inst // 2 >= len(numbers):
                return self.bad(x, "its stage has no such exchange")
            d, i = numbers[x.inst // 2]
            if p.teams.exchange[x.s][d][i][0] != op:
                return self.bad(x, "another exchange than its stage has there")
            mid = lambda k: f"mid({x.s},{x.b})#{k}"
            want = [("t", mid(x.inst))] if op == "ALL_REDUCE_A" else [("src", mid(x.inst)), ("t", mid(x.inst + 1))]
            if sorted((a[0], a[2]) for a in x.args) != want or any(a[3][1] > 1 for a in x.args):
                return self.bad(x, f"operands are not {want}")
        first = lambda x: self.operand(x, "t" if op == "ALL_REDUCE_A" else "src")[0]
        into = lambda x: self.operand(x, "t")[0]
        longer, shorter = {"ALL_GATHER_A": (n, 1), "REDUCE_SCATTER_A": (1, n)}.get(op, (1, 1))
        if len({self.bytes(x, first(x)) * longer for x in step} | {self.bytes(x, into(x)) * shorter for x in step}) > 1 or \
                op == "ALL_TO_ALL_A" and self.bytes(step[0], first(step[0])) % n:
            self.bad(step[0], "sizes differ")
        shares = [self.read(x, first(x)) for x in step]
        for m, x in enumerate(step):
            if x.op != "ALL_REDUCE_A" and into(x)[2] in self.live[x.rank]:
                self.bad(x, f"overwrites {into(x)[2]}")
            self.write(x, into(x), self.of_team(op, shares, m))

    def mids(self):
        """Checks that tensors under one number have one size, and that there are no more numbers than exchanges."""
        sizes = {}
        for r, rank in enumerate(self.p.ranks):
            for b in rank.bufs.values():
                if b.kind != "mid":
                    continue
                if self.p.teams is None or b.inst is None or b.inst >= 2 * len(self.p.teams.numbers(b.s)):
                    self.bad(f"rank {r}", f"{b.name} has no number of an exchange")
                elif sizes.setdefault((self.p.teams.first_of(b.s), b.inst), b.size) != b.size:
                    self.bad(f"rank {r}", f"{b.name} is of another size")

    def members(self):
        """Checks that every member has each job of a team, on the same rank each time."""
        t, place = self.p.teams, {}
        for rank in self.p.ranks if t else ():
            for x in rank.ins:
                if x.op not in JOBS:
                    continue
                if place.setdefault((x.rank, t.member[x.s][0]), x.s) != x.s:
                    self.bad(x, "its rank is another member of the team, too")
                others = range(t.first_of(x.s), t.first_of(x.s) + t.size(x.s))
                if any((x.op, s, x.b) not in self.jobs for s in others):
                    self.bad(x, "not a job of all members")

    def grow(self, x):
        bufs = self.p.ranks[x.rank].bufs
        stash, wstash = self.operand(x, "stash"), self.operand(x, "wstash")
        if not wstash:
            self.bad(x, "no wstash")
        elif stash:
            a, b = bufs[stash[0][2]], bufs[wstash[0][2]]
            if a.size and (a.off != b.off or b.size < a.size):
                self.bad(x, f"{b.name} is not at the place of {a.name}")
            if a.grows != b.name:
                self.hint(x, f"{a.name} does not say that it grows")
            if a.name not in x.frees and x.part[0] == x.part[1] - 1:
                (self.hint if x.part[1] == 1 else self.bad)(x, f"{a.name} grows and is not freed")
        self.put(x, "wstash", ("wstash", WHOLE, x.s, x.b), but=stash[0][2] if stash else None)

    def message(self, x, y):
        a, b = self.operand(x, "t"), self.operand(y, "t")
        v = self.read(x, a[0]) if a else [(Fraction(0), Fraction(1), None)]
        if len(a) != len(b):
            self.hint(x, "carries nothing, or nobody takes it")
        if a and b and self.bytes(x, a[0]) != self.bytes(y, b[0]):
            self.bad(x, "sizes differ at the two ends")
        if b:
            self.write(y, b[0], v)

    def bytes(self, x, a):
        return self.p.ranks[x.rank].bufs[a[2]].size // a[3][1]

    def total(self, x, at):
        p = self.p
        stages = p.users(x.s)
        m = p.updates[x.s] if p.updates else p.batches
        k = x.b or 0
        return ("sum", *sorted(((at, x.s, s, b), 1) for s in stages for b in range(k * m, (k + 1) * m)))

    def update(self, x):
        dw, w, opt = self.operand(x, "dw"), self.operand(x, "w"), self.operand(x, "opt")
        if not dw or not w:
            return self.bad(x, "without dw or w")
        got, old, at = self.read(x, dw[0]), self.read(x, w[0]), self.p.ranks[x.rank].places[x.s]
        if at.begin is None:
            return self.bad(x, "updates what is not at home here")
        (begin, end), first = self.span(x, w[0]), at.own_begin - at.begin
        if w[0][2] != at.weight or (begin, end) != (first, first + at.own):
            self.bad(x, f"updates {w[0][2]} from {begin} to {end}, not from {first} to {first + at.own}")
        if got != [(Fraction(0), at.own, self.total(x, at.own_begin))]:
            self.bad(x, f"its gradient is {got}")
        k = x.b or 0
        if old != [(Fraction(0), at.own, ("weight", at.own_begin, x.s, k))]:
            self.bad(x, f"updates {old}")
        if opt:
            if self.read(x, opt[0]) != [(Fraction(0), Fraction(1), ("opt", WHOLE, x.s, k))]:
                self.bad(x, f"opt is {opt[0]}")
            y, z = self.span(x, opt[0])
            self.write(x, opt[0], [(Fraction(0), z - y, ("opt", y, x.s, k + 1))])
        self.updates[x.rank, x.s] += 1
        self.write(x, w[0], [(Fraction(0), end - begin, ("weight", at.own_begin, x.s, k + 1))])

    def norm(self, x):
        """Checks this rank's part of a set before its update: its whole gradient."""
        norm, dw, at = self.operand(x, "norm"), self.operand(x, "dw"), self.p.ranks[x.rank].places[x.s]
        if not norm:
            return self.bad(x, "without norm")
        part = ()
        if dw:
            if at.begin is None or self.read(x, dw[0]) != [(Fraction(0), at.own, self.total(x, at.own_begin))]:
                self.bad(x, "its gradient is not all that is updated here, or not complete")
            else:
                part = (((x.s, at.own_begin), 1),)
        parts = Counter(dict(part))
        parts.update(dict(self.norm_at(x, norm[0])) if norm[0][1] else {})
        self.put_norm(x, norm[0], parts)

    def norm_at(self, x, a):
        v = self.read(x, a)
        if len(v) == 1 and v[0][2] is not None and v[0][2][0] == "norm":
            return v[0][2][2]
        self.bad(x, f"{a[2]} is {v}, not a norm")
        return ()

    def put_norm(self, x, a, parts):
        if self.p.ranks[x.rank].bufs[a[2]].kind != "norm":
            self.bad(x, f"puts a norm into {a[2]}")
        begin, end = self.span(x, a)
        self.write(x, a, [(Fraction(0), end - begin, ("norm", WHOLE, tuple(sorted(parts.items()))))])

    def norms(self, step):
        parts = Counter()
        for x in step:
            if x.s != 0:
                self.hint(x, "a norm is of no stage")
            if len(x.args) != 1:
                return self.bad(x, "without norm")
            parts.update(dict(self.norm_at(x, x.args[0])))
        for x in step:
            self.put_norm(x, x.args[0], parts)

    def whole(self):
        """Returns the parts of all sets that are updated, each once."""
        return tuple(sorted({((s, at.own_begin), 1) for rank in self.p.ranks for s, at in enumerate(rank.places)
                             if at.begin is not None}))

    def clips(self):
        return any(x.op == "NORM" for rank in self.p.ranks for x in rank.ins)

    def clipped(self, x):
        """Checks that, if any norm is taken, each update takes the norm of all gradients."""
        norm = self.operand(x, "norm")
        if not norm:
            return self.clips() and self.bad(x, "is not clipped")
        if norm[0][3] != (0, 1):
            self.hint(x, "a norm has no pieces")
        if self.norm_at(x, norm[0]) != self.whole():
            self.bad(x, "its norm is not that of all gradients")

    def host_copy(self, x):
        """Copies to host memory, or back; the copy has the size of its source."""
        src, to = self.operand(x, "src"), self.operand(x, "t")
        if not src or not to:
            return self.hint(x, "without src or t")
        a, b = (self.p.ranks[x.rank].bufs[o[0][2]] for o in (src, to))
        pairs = {"OFFLOAD_S": (("stash", "hstash"), ("input", "hinput")), "OFFLOAD_O": (("opt", "hopt"),),
                 "RELOAD_S": (("hstash", "rstash"), ("hinput", "rinput")), "RELOAD_O": (("hopt", "opt"),)}[x.op]
        if (a.kind, b.kind) not in pairs or (a.s, a.b, b.s, b.b) != (x.s, x.b, x.s, x.b):
            self.hint(x, "is named for another tensor")
        if self.bytes(x, src[0]) != self.bytes(x, to[0]):
            self.bad(x, "sizes differ")
        self.write(x, to[0], self.read(x, src[0]))

    def memories(self, x):
        """Checks that only OFFLOAD writes, and only RELOAD reads, host memory."""
        for a in x.args:
            there = x.op in HOST_COPIES and (a[0] == "t") == (x.op in OFFLOADS)
            if self.p.ranks[x.rank].bufs[a[2]].on_host() != there:
                self.bad(x, f"{a[2]} is in the other memory")

    def of_update(self, x):
        """Checks names, if updates are jobs: a gradient, and everything that uses it, is named for its update."""
        p = self.p
        k = None if not p.updates else x.b // p.updates[x.s] if x.op in JOBS else x.b if x.op == "U" else x.inst or 0
        for a in x.args if p.updates else ():
            b = p.ranks[x.rank].bufs[a[2]]
            if b.kind == "wgrad" and (b.inst or 0) // p.workers != k:
                self.hint(x, f"uses {b.name}, the gradient of another update")
            if b.kind in ("gshard", "gown"):
                self.hint(x, f"uses {b.name}, and homes have all of a gradient where updates are jobs")

    def other(self, x):
        rank = self.p.ranks[x.rank]
        if x.op == "U":
            self.update(x)
            self.clipped(x)
        elif x.op == "NORM":
            self.norm(x)
        elif x.op in HOST_COPIES:
            self.host_copy(x)
        elif x.op == "ZERO":
            for a in self.operand(x, "dw"):
                begin, end = self.span(x, a)
                self.write(x, a, [(Fraction(0), end - begin, ZERO)])
            if not x.args:
                self.hint(x, "without dw")
        else:  # ADD, TAKE, COPY
            src, to = self.operand(x, "src"), self.operand(x, "w" if x.op == "COPY" else "dw")
            if not src or not to:
                return self.hint(x, "without src, dw or w")
            self.named(x)
            if self.bytes(x, src[0]) != self.bytes(x, to[0]):
                self.bad(x, "sizes differ")
            v = self.read(x, src[0])
            if x.op == "COPY":
                self.write(x, to[0], v)
            else:
                self.add(x, to[0], zipped(v, [(Fraction(0), v[-1][1], ZERO)], self.plus))

    def named(self, x):
        """Checks that a move of weights or gradients names the right set; a gather into fetched weights has their
        number."""
        weights = x.op in GATHERS or x.op == "COPY"
        bufs = [self.p.ranks[x.rank].bufs[a[2]] for a in x.args]
        kinds = ("weight", "wshard") if weights else ("wgrad", "gshard", "gown")
        if any(b.kind not in kinds or b.s != x.s for b in bufs):
            self.hint(x, "is named for another tensor")
        into = [self.p.ranks[x.rank].bufs[a[2]].inst for a in x.args if a[0] == "w"]
        if weights and into and (x.inst is None) != (into[0] is None):
            self.hint(x, "has the number of no fetched weights, or lacks one")

    def operands_of(self, step):
        """Returns each member's only src and dw or w, or None if one is missing or superfluous."""
        op, out = step[0].op, []
        for x in step:
            src, to = self.operand(x, "src"), [a for a in x.args if a[0] != "src"]
            root = x.op in ROOTED and x.rank == x.peer
            wants = {"ALL_REDUCE": (0, 1), "BROADCAST": (root, not root), "REDUCE": (1, root)}.get(op, (1, 1))
            if (len(src), len(to)) != wants:
                self.bad(x, "operands missing, or too many")
                return None
            out.append((src[0] if src else None, to[0] if to else None))
        return out

    def collective(self, step):
        members, op, n = self.operands_of(step), step[0].op, len(step)
        if members is None:
            return
        for x in step:
            self.named(x)
        both = list(zip(step, members))
        sources = [(x, src if op != "ALL_REDUCE" else to) for x, (src, to) in both if src or op == "ALL_REDUCE"]
        targets = [(i, x, src, to) for i, (x, (src, to)) in enumerate(both) if to]
        read = [self.read(x, a) for x, a in sources]
        longer, shorter = {"ALL_GATHER": (1, n), "REDUCE_SCATTER": (n, 1)}.get(op, (1, 1))
        if len({self.bytes(x, a) * shorter for x, a in sources} | {self.bytes(x, to) * longer for _, x, _, to in targets}) > 1:
            return self.bad(step[0], "sizes differ")
        if len({v[-1][1] for v in read}) != 1:
            return self.bad(step[0], "no source, or tensors that differ in size")
        whole = read[0][-1][1]
        if op in ("ALL_REDUCE", "REDUCE_SCATTER", "REDUCE"):
            total = [(Fraction(0), whole, ZERO)]
            for v in read:
                total = zipped(total, v, self.plus)
        for i, x, src, to in targets:
            self.in_place(x, src, to, i, n)
            piece = whole / n
            if op == "ALL_GATHER":
                parts = [(y + j * whole, z + j * whole, moved(v, j * whole)) for j, part in enumerate(read)
                         for y, z, v in part]
                self.write(x, to, joined(parts))
            elif op == "BROADCAST":
                self.write(x, to, read[0])
            elif op == "ALL_REDUCE":
                self.write(x, to, total)
            else:
                self.add(x, to, cut(total, i * piece, (i + 1) * piece) if op == "REDUCE_SCATTER" else total)
                if src[2] == to[2] and self.span(x, to)[0] < self.span(x, src)[1] and \
                        self.span(x, src)[0] < self.span(x, to)[1]:
                    self.spoil(x, src, to)

    def in_place(self, x, src, to, i, n):
        """Checks that a member's source and target share bytes only if one is the member's piece of the other."""
        if src is None or src[2] != to[2]:
            return
        (a, b), (c, d) = self.span(x, src), self.span(x, to)
        if x.op == "ALL_GATHER":
            good = (a, b) == (c + (d - c) * i / n, c + (d - c) * (i + 1) / n)
        elif x.op == "REDUCE":
            good = (a, b) == (c, d) and not to[1]
        else:
            good = x.op == "REDUCE_SCATTER" and (c, d) == (a + (b - a) * i / n, a + (b - a) * (i + 1) / n) and not to[1]
        if a < d and c < b and not good:
            self.bad(x, "in place, and not its own piece")

    def spoil(self, x, src, to):
        """In place, the rest of the source becomes garbage."""
        live, (a, b), (c, d) = self.live[x.rank], self.span(x, src), self.span(x, to)
        out = []
        for y, z, v in live[src[2]]:
            for begin, end, bad in ((Fraction(0), a, 0), (a, c, 1), (c, d, 0), (d, b, 1), (b, Fraction(2), 0)):
                if max(y, begin) < min(z, end):
                    out.append((max(y, begin), min(z, end), None if bad else v))
        live[src[2]] = joined(out)

    def run(self, steps):
        self.jobs = {(x.op, x.s, x.b) for step in steps for x in step if x.op in JOBS}
        self.parts = {}
        self.follow()
        self.mids()
        self.members()
        for step in steps:
            x = step[0]
            for y in step:
                self.memories(y)
                self.of_update(y)
            if x.op in JOBS:
                self.made[x.op, x.s, x.b] += x.part[0] == 0
                self.job(x)
            elif x.op in SENDS:
                self.message(*step)
            elif x.op in TEAM:
                self.team_collective(step)
            elif x.op == "ALL_REDUCE_N":
                self.norms(step)
            elif x.op in COLLECTIVES:
                self.collective(step)
            else:
                self.other(x)
            for y in step:
                self.free(y)
        self.finish()

    def finish(self):
        p = self.p
        once = lambda *job: self.made[job] == 1
        for s in range(p.stages):
            for b in range(p.batches):
                if not once("F", s, b):
                    self.bad("jobs", f"F {s} {b} runs {self.made['F', s, b]} times")
                if [self.made[d, s, b] for d in "BIW"] not in ([1, 0, 0], [0, 1, 1]):
                    self.bad("jobs", f"the backward of {s} {b}")
                if self.made["R", s, b] > 1:
                    self.bad("jobs", f"R {s} {b} twice")
        for job in p.needs or ():
            if not once(*job):
                self.bad("jobs", f"{job} does not run once")
        for s in range(p.sets):
            if s not in p.bare and not any(rank.places[s].begin is not None for rank in p.ranks):
                self.bad("jobs", f"weight({s}) is at home nowhere")
        for r, rank in enumerate(p.ranks):
            for b in rank.bufs.values():
                left = b.name in self.live[r]
                if b.kind == "norm" and self.live[r].get(b.name) != [(Fraction(0), Fraction(1), ("norm", WHOLE, self.whole()))]:
                    self.hint(f"rank {r}", "its norm is another after the updates")
                if b.kind == "norm" and b.size != 168:
                    self.hint(f"rank {r}", "a norm of another size")
                if left and not persists(rank, b):
                    self.bad(f"rank {r}", f"never frees {b.name}")
                if b.kind in ("weight", "wshard") and b.inst is None and b.name not in rank.places[b.s].kept:
                    self.bad(f"rank {r}", f"{b.name} is not at home here")
            for s, at in enumerate(rank.places):
                if at.begin is not None:
                    value, updates = self.live[r].get(at.weight), self.updates[r, s]
                    want = p.batches // p.updates[s] if p.updates else 1
                    if updates != want or value != [(Fraction(0), at.length, ("weight", at.begin, s, want))]:
                        self.bad(f"rank {r}", f"{at.weight} is {value} after {updates} updates")
                    state = self.live[r].get(f"hopt({s})")
                    if f"hopt({s})" in at.kept and state != [(Fraction(0), Fraction(1), ("opt", WHOLE, s, 1))]:
                        self.bad(f"rank {r}", f"hopt({s}) is {state} after the step")
