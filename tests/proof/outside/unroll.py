"""Writes out a program whose period repeats (compiler/text-form.md) as one without a period.

Repetition i is the period's instructions with i periods added to the numbers of microbatches, updates and versions.
Instructions after the period are shifted like the last repetition. An instruction of a later repetition means bytes,
not names: its operand lies where the instruction that it repeats has its operand. At a mark, the first instruction of
each lane waits for the last one of every lane.
"""

from program import ACCESS, Unreadable, print_program

FAR = 100000  # keeps the numbers of fetched weights apart between repetitions


class Draft:
    pass


def stays(b):
    """Returns whether it exists once: weights and optimizer state at home, and the workspace."""
    return b.kind in ("work", "opt") or b.kind == "weight" and b.inst is None


class Copier:
    """The instructions of one rank, repetition after repetition."""

    def __init__(self, p, r, times):
        self.p, self.r, self.old = p, r, p.ranks[r]
        self.bufs = {name: b for name, b in self.old.bufs.items() if times == 1 or stays(b)}  # the new program's
        self.ins, self.open, self.now, self.turn = [], [], {}, None
        self.copies = {}  # new copy of an old instruction, by section and turn

    def more(self, s):
        return self.turn * self.p.period[0] // self.p.updates[s]

    def moved(self, b):
        """Returns the name of the buffer that b is in this turn."""
        c = type(b)()
        for slot in b.__slots__:
            setattr(c, slot, getattr(b, slot))
        c.grows = None
        if b.b is not None:
            c.b += self.turn * self.p.period[0]
        elif b.kind == "wgrad":
            k = (b.inst or 0) // self.p.workers + self.more(b.s)
            sender = self.r if b.inst is None else b.inst % self.p.workers
            c.inst = None if k == 0 and sender == self.r else sender + self.p.workers * k
        elif b.kind == "weight" and b.inst is not None:
            c.inst += self.turn * FAR
        return c

    def buffer(self, name, reads):
        b = self.old.bufs[name]
        if self.turn == 0 or stays(b):
            return self.bufs.setdefault(name, b)
        if name in self.now:
            return self.now[name]
        c = self.moved(b)
        alike = [o for o in self.open if (o.kind, o.s, o.off, o.size) == (c.kind, c.s, c.off, c.size)] if reads else []
        alike.sort(key=lambda o: (o.b, o.inst) != (c.b, c.inst))
        if alike:
            c = alike[0]
        else:
            c.name = f"{c.kind}({c.s}" + (f",{c.b})" if c.b is not None else ")") + (f"#{c.inst}" if c.inst is not None else "")
            c = self.bufs.setdefault(c.name, c)
            if c.off != b.off:
                raise Unreadable(f"{c.name} lies in two places")
        self.now[name] = c
        return c

    def copy(self, x):
        y = type(x)()
        for slot in x.__slots__:
            if hasattr(x, slot):
                setattr(y, slot, getattr(x, slot))
        if x.op == "U":
            y.b += self.more(x.s)
        elif x.b is not None:
            y.b += self.turn * self.p.period[0]
        if x.version is not None:
            y.version += self.more(x.s)
        if self.turn and x.op in ("SERVE", "FETCH", "COPY", "BROADCAST", "ALL_GATHER") and x.inst is not None:
            y.inst += self.turn * FAR
        elif self.turn and x.op in ("SEND_G", "RECV_G", "ADD", "ALL_REDUCE", "ZERO", "TAKE", "REDUCE"):
            y.inst = (x.inst or 0) + self.more(x.s)
        writes = lambda a: ACCESS[x.op][a[0]] != "r"
        fresh = lambda a: ACCESS[x.op][a[0]] == "w" or ACCESS[x.op][a[0]] == "a" and not a[1]
        found = {a[2]: self.buffer(a[2], not fresh(a)) for a in sorted(x.args, key=fresh)}
        y.args = [(a[0], a[1], found[a[2]].name, a[3]) for a in x.args]
        for a in x.args:
            if writes(a) and found[a[2]] not in self.open and not stays(found[a[2]]):
                self.open.append(found[a[2]])
        y.frees = []
        for name in x.frees:
            b = self.buffer(name, True)
            y.frees.append(b.name)
            if b in self.open:
                self.open.remove(b)
        return y

    def section(self, number, turn):
        if turn != self.turn:
            self.now, self.turn = {}, turn
        before, last, begun = self.ins[:], {}, set()
        for x in before:
            last[x.lane] = x
        for x in [x for x in self.old.ins if x.section == number]:
            y = self.copy(x)
            self.copies[x] = y
            y.waited = [self.copies[w] for w in x.waited]
            if y.lane not in begun:
                y.waited = list(dict.fromkeys(y.waited + [z for l, z in last.items() if l != y.lane]))
            begun.add(y.lane)
            self.ins.append(y)


def unrolled(p, times):
    """Returns the text, or None if the repetitions' jobs have needs, which a text does not state."""
    if p.needs and times > 1:
        return None
    d = Draft()
    d.name, d.workers, d.stages, d.tied, d.homes = "unrolled", p.workers, p.stages, p.tied, p.homes
    d.batches = p.batches + (times - 1) * p.period[0]
    d.sets, d.bare, d.contributed = p.sets, p.bare, p.contributed
    d.updates, d.period, d.ranks, d.teams = p.updates, None, [], p.teams
    d.slices, d.attends = p.slices, p.attends
    d.needs_list = list((p.needs or {}).items())
    for r, old in enumerate(p.ranks):
        c, rank = Copier(p, r, times), type(old)()
        c.section(0, 0)
        for turn in range(times):
            c.section(1, turn)
        c.section(2, times - 1)
        rank.lanes, rank.ins, rank.arena, rank.host = old.lanes, c.ins, old.arena, old.host
        rank.bufs = list(c.bufs.values())
        d.ranks.append(rank)
    return print_program(d)
