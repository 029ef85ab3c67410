"""A second opinion on `pianola verify`: is a program, in its text form, right on the machine "start-end"?

Written from the description of the machine and of the text form in compiler/README.md and from runtime/ops.h alone; it
shares nothing with the compiler. judge(text) answers with two lists:

  wrong   what makes the program wrong on some run of that machine, or breaks a claim of "What is proved" in README.md.
          Where verify says proved and this list is not empty, one of the two is mistaken.
  strict  what harms nobody but is not as the text form is described: a buffer that is written and never read, a message
          named for another tensor than it carries, or an operand that nobody needs. verify may refuse those or not.

How: one serial walk of all ranks, an instruction at a time and every send blocking, gives every buffer its value as a
term: ("act", s, b), ("weight", s, updates), a gradient as the count of each contribution, (to whose gradient, of which
stage, of which microbatch). The events S(x) and E(x) in the walk's order make a graph whose ancestors are bitsets; two
conflicting accesses must be ordered E -> S. An execution without races gives each read what the walk gave it, so that
values of one order are those of all.

player.py doubts the second half of that: it plays random runs of the machine on symbolic bytes.
"""

from collections import Counter

from program import ACCESS, JOBS, RECV_OF, RECVS, SENDS, Unreadable, at_home, persists, read


# ---- the serial walk ----

def walk(p):
    """The steps of the serial walk: a list of (instruction,), (send, recv) and (reduce, ...). None: it does not end."""
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
        elif x.op == "ALL_REDUCE":
            peers = p.ranks[r].lanes[x.lane][1]
            step = tuple(cur(q) for q in peers)
            if any(y is None or y.op != "ALL_REDUCE" or p.ranks[q].lanes[y.lane][1] != peers for q, y in zip(peers, step)):
                continue
            if len({y.s for y in step}) > 1:
                p.wrong.append(f"order: {x} meets a ALL_REDUCE of another stage")
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


# ---- values ----

class Values:
    """The contents of all ranks' buffers, along the serial walk."""

    def __init__(self, p):
        self.p, self.live, self.updates = p, [], Counter()
        self.made = Counter()  # jobs
        for r, rank in enumerate(p.ranks):
            live = {}
            for b in rank.bufs.values():
                if persists(rank, b):
                    live[b.name] = {"weight": ("weight", b.s, 0), "opt": ("opt", b.s)}.get(b.kind)
            self.live.append(live)
            for b in live:
                self.room(r, b, f"rank {r} at the start")
        self.sets = {}

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
                if other != name and other != but and o.off >= 0 and o.off < b.off + b.size and b.off < o.off + o.size:
                    self.bad(x, f"overlap: {name} and {other}")

    def read(self, x, name):
        if name not in self.live[x.rank]:
            self.bad(x, f"reads {name}, not written or freed")
            return None
        v = self.live[x.rank][name]
        if v is None and not name.startswith("work"):
            self.bad(x, f"reads {name}, never written")
        return v

    def write(self, x, name, value, but=None):
        live = self.live[x.rank]
        self.fits(x, name, value)
        if name not in live:
            live[name] = value
            self.room(x.rank, name, x, but)
        else:
            adds = any(a[1:] == (True, name) for a in x.args)
            if live[name] is not None and x.op not in ("U", "ALL_REDUCE", "ZERO") and not adds:
                self.hint(x, f"overwrites {name}")
            live[name] = value

    def fits(self, x, name, value):
        """A tensor of a kind and stage has one size, that of the buffers named for it."""
        if isinstance(value, tuple):
            key = value[:2]
        else:
            of = {k[0] for k in value or ()}
            key = ("wgrad", of.pop()) if len(of) == 1 else None
        b = self.p.ranks[x.rank].bufs[name]
        if b.kind == "work":
            self.bad(x, "puts a tensor into the workspace")
        if key and key[0] != "token" and self.p.sizes.get(key, b.size) != b.size:
            if b.size < self.p.sizes[key]:
                self.bad(x, f"puts {key} of {self.p.sizes[key]} bytes into {name}")
            else:
                self.hint(x, f"{name} is larger than {key}")

    def free(self, x):
        rank = self.p.ranks[x.rank]
        for name in x.frees:
            b = rank.bufs[name]
            if persists(rank, b):
                (self.bad if b.kind != "wgrad" else self.hint)(x, f"frees {name}, which stays")
                if b.kind != "wgrad":
                    continue
            elif name not in (a[2] for a in x.args):
                self.hint(x, f"frees {name}, which it does not use")
            if name in self.live[x.rank]:
                del self.live[x.rank][name]
            else:
                self.bad(x, f"frees {name}, which is not live")

    def contribute(self, x, role, s):
        """dw or dv of a job, ADD."""
        a = [a for a in x.args if a[0] == role]
        if not a:
            self.bad(x, f"no {role}: its gradient is lost")
            return
        _, adds, name = a[0]
        add = {(s, x.s, x.b): 1}
        size = self.p.sizes.get(("wgrad", s))
        if size is not None and self.p.ranks[x.rank].bufs[name].size < size:
            self.bad(x, f"puts a gradient of {size} bytes into {name}")
        old = self.read(x, name) if adds else {}
        total = Counter(old) if isinstance(old, dict) else Counter({("no gradient", str(old)): 1})
        total.update(add)
        self.write(x, name, dict(total))

    def operand(self, x, role):
        return [a[2] for a in x.args if a[0] == role]

    def expect(self, x, role, values, why=None):
        """The role's operands hold exactly these values."""
        got = [self.read(x, n) for n in self.operand(x, role)]
        if sorted(map(str, got)) != sorted(map(str, values)):
            self.bad(x, f"{role} is {got}, not {values}")

    def put(self, x, role, value, wanted=None, but=None):
        names = self.operand(x, role)
        for n in names:
            self.write(x, n, value, but)
        return names

    def preds(self, x):
        p = self.p
        if p.needs is not None:
            return p.needs.get((x.op, x.s, x.b))
        if x.op == "F":
            return [("F", x.s - 1, x.b)] if x.s else []
        if x.op in "BI":
            return [(d, x.s + 1, x.b) for d in "BI" if (d, x.s + 1, x.b) in self.jobs]
        return []

    def weights(self, x):
        p = self.p
        self.expect(x, "w", [("weight", x.s, 0)])
        uses = p.tied is not None and (x.s == p.tied or x.s == 0 and x.op in "FR")
        self.expect(x, "v", [("weight", p.stages, 0)] if uses else [])

    def job(self, x):
        p = self.p
        preds = self.preds(x)
        if preds is None:
            self.bad(x, "not a job of the graph")
            preds = []
        for t in self.operand(x, "t"):
            v = self.read(x, t)
            if not isinstance(v, tuple) or v[0] != "token":
                self.hint(x, f"t={t} is no token")
        if x.op in "FRIB":
            self.weights(x)
        if x.op == "F":
            self.expect(x, "x", [("act", s, b) for d, s, b in preds if d == "F" and b == x.b and s != x.s])
            kept = self.put(x, "stash", ("stash", x.s, x.b)) + self.put(x, "input", ("input", x.s, x.b))
            self.put(x, "y", ("act", x.s, x.b))
            if len(kept) != 1:
                self.hint(x, "keeps " + str(kept))
        elif x.op == "R":
            self.expect(x, "input", [("input", x.s, x.b)])
            self.put(x, "stash", ("stash", x.s, x.b))
        elif x.op in "IB":
            self.expect(x, "stash", [("stash", x.s, x.b)])
            self.expect(x, "dy", [("grad", s, b) for d, s, b in preds if d in "BI" and b == x.b and s != x.s])
            if x.op == "I":
                self.grow(x)
            self.put(x, "dx", ("grad", x.s, x.b))
        else:
            self.expect(x, "wstash", [("wstash", x.s, x.b)])
        if x.op in "BW":
            self.contribute(x, "dw", x.s)
            if p.tied is not None and x.s in (0, p.tied):
                self.contribute(x, "dv", p.stages)
            elif self.operand(x, "dv"):
                self.bad(x, "has a dv, but no part in the table")
        self.put(x, "done", ("token", x.s, x.b, JOBS.index(x.op)))

    def grow(self, x):
        bufs = self.p.ranks[x.rank].bufs
        stash, wstash = self.operand(x, "stash"), self.operand(x, "wstash")
        if not wstash:
            self.bad(x, "no wstash")
        elif stash:
            a, b = bufs[stash[0]], bufs[wstash[0]]
            if a.size and (a.off != b.off or b.size < a.size):
                self.bad(x, f"{b.name} is not at the place of {a.name}")
            if a.grows != b.name:
                self.hint(x, f"{a.name} does not say that it grows")
            if a.name not in x.frees:
                self.hint(x, f"{a.name} grows and is not freed")
        self.put(x, "wstash", ("wstash", x.s, x.b), but=stash[0] if stash else None)

    def message(self, x, y):
        a, b = self.operand(x, "t"), self.operand(y, "t")
        v = self.read(x, a[0]) if a else None
        if len(a) != len(b):
            self.hint(x, "carries nothing, or nobody takes it")
        if a and b and self.p.ranks[x.rank].bufs[a[0]].size != self.p.ranks[y.rank].bufs[b[0]].size:
            self.bad(x, "sizes differ at the two ends")
        if b:
            self.write(y, b[0], v)

    def total(self, x):
        p = self.p
        stages = {x.s} if x.s < p.stages else {0, p.tied}
        return {(x.s, s, b): 1 for s in stages for b in range(p.batches)}

    def update(self, x):
        dw, w, opt = self.operand(x, "dw"), self.operand(x, "w"), self.operand(x, "opt")
        if not dw or not w:
            return self.bad(x, "without dw or w")
        got = self.read(x, dw[0])
        if got != self.total(x):
            self.bad(x, f"its gradient is {got}")
        if self.read(x, w[0]) != ("weight", x.s, 0):
            self.bad(x, f"updates {self.read(x, w[0])}")
        if opt and self.read(x, opt[0]) != ("opt", x.s):
            self.bad(x, f"opt is {opt[0]}")
        self.updates[x.rank, x.s] += 1
        self.write(x, w[0], ("weight", x.s, 1))

    def other(self, x):
        rank = self.p.ranks[x.rank]
        if x.op == "U":
            self.update(x)
        elif x.op == "ZERO":
            for n in self.operand(x, "dw"):
                self.write(x, n, {})
            if not x.args:
                self.hint(x, "without dw")
        elif x.op == "ADD":
            src, dw = self.operand(x, "src"), [a for a in x.args if a[0] == "dw"]
            if not src or not dw:
                return self.hint(x, "without src or dw")
            if {rank.bufs[n].kind + str(rank.bufs[n].s) for n in (src[0], dw[0][2])} != {f"wgrad{x.s}"}:
                self.hint(x, "is named for another gradient")
            v = self.read(x, src[0])
            v = v if isinstance(v, dict) else {("no gradient", str(v)): 1}
            old = self.read(x, dw[0][2]) if dw[0][1] else {}
            old = old if isinstance(old, dict) else {("no gradient", str(old)): 1}
            self.write(x, dw[0][2], dict(Counter(old) + Counter(v)))

    def reduce(self, step):
        parts = [self.operand(x, "dw") for x in step]
        if not all(parts):
            return self.bad(step[0], "a member without dw")
        total = Counter()
        for x, n in zip(step, parts):
            v = self.read(x, n[0])
            total.update(v if isinstance(v, dict) else {("no gradient", str(v)): 1})
        if len({self.p.ranks[x.rank].bufs[n[0]].size for x, n in zip(step, parts)}) > 1:
            self.bad(step[0], "sizes differ")
        for x, n in zip(step, parts):
            self.write(x, n[0], dict(total))

    def run(self, steps):
        self.jobs = {(x.op, x.s, x.b) for step in steps for x in step if x.op in JOBS}
        for step in steps:
            x = step[0]
            if x.op in JOBS:
                self.made[x.op, x.s, x.b] += 1
                self.job(x)
            elif x.op in SENDS:
                self.message(*step)
            elif x.op == "ALL_REDUCE":
                self.reduce(step)
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
        for s in range(p.stages + (p.tied is not None)):
            if not any(at_home(rank, s) for rank in p.ranks):
                self.bad("jobs", f"weight({s}) is at home nowhere")
        for r, rank in enumerate(p.ranks):
            for b in rank.bufs.values():
                left = b.name in self.live[r]
                if left and not persists(rank, b):
                    self.bad(f"rank {r}", f"never frees {b.name}")
                if b.kind == "weight" and b.inst is None:
                    value, updates = self.live[r].get(b.name), self.updates[r, b.s]
                    if updates != 1 or value != ("weight", b.s, 1):
                        self.bad(f"rank {r}", f"{b.name} is {value} after {updates} updates")


# ---- what depends on no order ----

def plan(p):
    sizes, opts = {}, set()
    p.sizes = sizes
    for r, rank in enumerate(p.ranks):
        used = {a[2] for x in rank.ins for a in x.args}
        for b in rank.bufs.values():
            if b.kind not in ("work", "token") and sizes.setdefault((b.kind, b.s), b.size) != b.size:
                p.wrong.append(f"sizes: {b.name} on rank {r}")
            if b.name not in used and b.kind != "work":
                p.strict.append(f"rank {r}: {b.name} is unused")
            if b.grows and (rank.bufs[b.grows].kind != "wstash" or b.kind != "stash"):
                p.strict.append(f"rank {r}: {b.name} grows")
        for x in rank.ins:
            if x.op == "U":
                w = rank.bufs.get(f"weight({x.s})")
                if w and w.size:
                    opts.add(any(a[0] == "opt" for a in x.args))
            if len({a[2] for a in x.args}) < len(x.args):
                p.strict.append(f"{x}: a buffer twice")
    if len(opts) > 1:
        p.strict.append("some updates have an optimizer's state, and some have none")


# ---- races ----

def accesses(x):
    for role, adds, name in x.args:
        how = ACCESS[x.op][role]
        yield name, how != "w" and not (how == "a" and not adds), how != "r"


def ancestors(p, steps):
    """Bit 2n of anc[e]: S of the n-th instruction of the walk comes before event e; bit 2n + 1: its E."""
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
        starts = [2 * number[x] for x in step]
        for x in step:
            before = 0
            for s in starts if x.op not in SENDS else [2 * number[x]]:
                before |= anc[s] | 1 << s
            anc[2 * number[x] + 1] = before
    return number, anc


def races(p, steps):
    number, anc = ancestors(p, steps)
    for rank in p.ranks:
        bufs = list(rank.bufs.values())
        near = {a.name: [b.name for b in bufs if a is b or a.size and b.size and a.off < b.off + b.size and
                         b.off < a.off + a.size] for a in bufs}
        wrote, touched = Counter(), Counter()
        for x in rank.ins:
            before, mine = anc[2 * number[x]], []
            for name, _, writes in accesses(x):
                met = 0
                for other in near[name]:
                    met |= touched[other] if writes else wrote[other]
                if met & ~before:
                    last = ((met & ~before).bit_length() - 2) // 2  # bit 2n + 1 is E of instruction n
                    y = next(y for y in rank.ins if number[y] == last)
                    p.wrong.append(f"race: {y} and {x} at {name}")
                mine.append((name, writes))
            for name, writes in mine:
                touched[name] |= 2 << 2 * number[x]
                if writes:
                    wrote[name] |= 2 << 2 * number[x]
    if p.needs:
        jobs = {(x.op, x.s, x.b): x for x in number if x.op in JOBS}
        for job, preds in p.needs.items():
            for q in preds:
                if job in jobs and (q not in jobs or not anc[2 * number[jobs[job]]] >> 2 * number[jobs[q]] + 1 & 1):
                    p.wrong.append(f"needs: {job} is not after {q}")


def judge(text):
    """(wrong, strict, program, steps). Raises Unreadable."""
    try:
        p = read(text)
    except (ValueError, IndexError) as e:  # of int() and of lines, at what is not there
        raise Unreadable(str(e)) from e
    plan(p)
    if 2 * p.stages * p.batches > sum(len(rank.ins) for rank in p.ranks):
        p.wrong.append("jobs: there are more than instructions")
        return p.wrong, p.strict, p, None
    steps = walk(p)
    if steps is not None:
        Values(p).run(steps)
        races(p, steps)
    return p.wrong, p.strict, p, steps
