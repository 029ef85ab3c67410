"""Random runs of the machine "start-end" on symbolic bytes, in which the races of checker.py take effect."""

from fractions import Fraction

from checker import accesses, reached
from program import SENDS, persists


def cells_of(rank):
    """Returns the cells that each piece of a buffer covers. A cell is a part of the arena between two borders, or a
    piece's name for a buffer of nothing."""
    pieces = {(a[2], a[3]) for x in rank.ins for a in x.args} | {(name, (0, 1)) for name in rank.bufs}
    span = {}
    for name, (i, n) in pieces:
        b = rank.bufs[name]
        share = Fraction(b.size or 1, n)
        memory = "host" if b.on_host() else "device"
        span[name, (i, n)] = (memory if b.size else name, (b.off if b.size else 0) + share * i, share)
    borders = {}
    for of, begin, share in span.values():
        borders.setdefault(of, set()).update((begin, begin + share))
    order = {of: sorted(all_) for of, all_ in borders.items()}
    index = {of: {e: i for i, e in enumerate(all_)} for of, all_ in order.items()}
    return {piece: [(of, i) for i in range(index[of][begin], index[of][begin + share])]
            for piece, (of, begin, share) in span.items()}


class Player:
    """One random run. Each instruction touches its cells between its start and its end, in random order, with garbage
    before its result. Each read must find what the serial walk left there. A send is buffered or a rendezvous."""

    def __init__(self, p, steps, rng):
        self.p, self.rng = p, rng
        self.cells = [cells_of(rank) for rank in p.ranks]
        self.memory = [{} for _ in p.ranks]
        self.partner = {}
        for step in steps:
            for x in step:
                self.partner[x] = step
        self.wanted = self.serial(steps)
        self.weight = {}

    def touched(self, x):
        reads, writes = set(), set()
        for name, piece, r, w in accesses(x):
            for c in self.cells[x.rank][name, piece]:
                if r:
                    reads.add(c)
                if w:
                    writes.add(c)
        return reads, writes

    def serial(self, steps):
        wanted = {}
        for step in steps:
            for x in step:
                reads, _ = self.touched(x)
                wanted[x] = {c: self.memory[x.rank].get(c) for c in reads}
            for x in step:
                for c in self.touched(x)[1]:
                    self.memory[x.rank][c] = x.label
        self.last = [dict(m) for m in self.memory]
        self.memory = [{} for _ in self.p.ranks]
        return wanted

    def actions(self, x):
        """Returns touches in random order, last first, as (cell, what): a read's value, or garbage and then the
        result."""
        reads, writes = self.touched(x)
        todo = []
        for c in sorted(reads | writes, key=str):
            mine = ([("read", c)] * self.rng.randint(1, 2) if c in reads else [])
            mine += [("garbage", c), ("write", c)] if c in writes else []
            todo.append(mine)
        order = []
        while todo:
            mine = self.rng.choice(todo)
            order.append(mine.pop(0))
            if not mine:
                todo.remove(mine)
        return order[::-1]

    def may_end(self, x):
        for y in self.partner[x]:
            if x.op in SENDS and self.buffered[x]:
                continue
            if y not in self.started and (x.op in SENDS or reached(y, x)):
                return False
        return True

    def run(self):
        """Reports an error, or None."""
        p, rng = self.p, self.rng
        self.buffered = {x: rng.random() < 0.5 for x in self.partner if x.op in SENDS}
        self.started, ended = set(), set()
        lanes = {}
        for rank in p.ranks:
            for x in rank.ins:
                lanes.setdefault((x.rank, x.lane), []).append(x)
        for lane in lanes.values():
            lane.reverse()
        speed = {lane: 10.0 ** rng.uniform(-3, 0) for lane in lanes}
        doing, ready = {}, set(lanes)
        while lanes:
            able = [l for l in lanes if self.able(l, lanes, doing, ended)]
            if not able:
                return "deadlock at " + "; ".join(str(l[-1]) for l in lanes.values())
            lane = rng.choices(able, [speed[l] for l in able])[0]
            x = lanes[lane][-1]
            burst = rng.randint(1, 8)
            if x not in self.started:
                self.started.add(x)
                doing[x] = self.actions(x)
                continue
            while doing[x] and burst:
                burst -= 1
                what, c = doing[x].pop()
                m = self.memory[x.rank]
                if what == "read" and m.get(c) != self.wanted[x][c]:
                    return f"{x} reads {m.get(c)} and not {self.wanted[x][c]}"
                if what != "read":
                    m[c] = x.label if what == "write" else "garbage"
            if not doing[x] and self.may_end(x):
                ended.add(x)
                lanes[lane].pop()
                if not lanes[lane]:
                    del lanes[lane]
                if rng.random() < 0.05:
                    speed[lane] = 10.0 ** rng.uniform(-3, 0)
        for r, rank in enumerate(p.ranks):
            for b in rank.bufs.values():
                now, then, cells = self.memory[r], self.last[r], self.cells[r][b.name, (0, 1)]
                if persists(rank, b) and b.kind != "work" and any(now.get(c) != then.get(c) for c in cells):
                    return f"rank {r}: {b.name} ends as another"
        self.memory = [{} for _ in p.ranks]
        return None

    def able(self, lane, lanes, doing, ended):
        x = lanes[lane][-1]
        if x not in self.started:
            return all(w in ended for w in x.waited)
        return bool(doing[x]) or self.may_end(x)


def play(p, steps, runs, rng):
    """Reports the first error found in n random runs, or None."""
    if any(b.off < 0 for rank in p.ranks for b in rank.bufs.values()):
        return None
    for _ in range(runs):
        why = Player(p, steps, rng).run()
        if why:
            return why
    return None
