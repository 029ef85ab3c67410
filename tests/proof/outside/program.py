"""A program's text form (compiler/text-form.md): its parts, read() and print_program()."""

import re
from fractions import Fraction

import teams
from ranges import print_ranges, read_ranges

JOBS = ("F", "R", "I", "B", "W")
RECV_OF = {"SEND_F": "RECV_F", "SEND_B": "RECV_B", "SEND_S": "RECV_S", "SEND_W": "RECV_W", "SEND_G": "RECV_G",
           "SEND_T": "RECV_T", "SEND_K": "RECV_K", "SEND_D": "RECV_D", "SERVE": "FETCH"}
SENDS, RECVS = frozenset(RECV_OF), frozenset(RECV_OF.values())
ACCESS = {  # role: r reads, w writes, m both, a accumulates
    "F": {"w": "r", "v": "r", "u": "r", "x": "r", "kv": "r", "got": "r", "stash": "w", "input": "w", "own": "w", "give": "w", "y": "w",
          "work": "m", "t": "r", "done": "w"},
    "R": {"w": "r", "v": "r", "u": "r", "input": "r", "kv": "r", "got": "r", "stash": "w", "give": "w", "work": "m", "t": "r",
          "done": "w"},
    "I": {"w": "r", "v": "r", "u": "r", "stash": "r", "kv": "r", "dy": "r", "dkv": "r", "got": "r", "wstash": "w", "give": "w",
          "dx": "w", "dpast": "w", "work": "m", "t": "r", "done": "w"},
    "B": {"w": "r", "v": "r", "u": "r", "stash": "r", "kv": "r", "dy": "r", "dkv": "r", "got": "r", "give": "w", "dx": "w",
          "dpast": "w", "dw": "a", "dv": "a", "du": "a", "work": "m", "t": "r", "done": "w"},
    "W": {"wstash": "r", "got": "r", "give": "w", "dw": "a", "dv": "a", "du": "a", "work": "m", "t": "r", "done": "w"},
    "U": {"dw": "r", "norm": "r", "opt": "m", "w": "m"}, "NORM": {"dw": "r", "norm": "a"}, "ALL_REDUCE_N": {"norm": "m"},
    "ADD": {"src": "r", "dw": "a"}, "TAKE": {"src": "r", "dw": "a"}, "COPY": {"src": "r", "w": "w"}, "ZERO": {"dw": "w"},
    "ALL_GATHER": {"src": "r", "w": "w"}, "BROADCAST": {"src": "r", "w": "w"}, "ALL_REDUCE": {"dw": "m"},
    "REDUCE_SCATTER": {"src": "r", "dw": "a"}, "REDUCE": {"src": "r", "dw": "a"},
    "OFFLOAD_S": {"src": "r", "t": "w"}, "RELOAD_S": {"src": "r", "t": "w"},
    "OFFLOAD_O": {"src": "r", "t": "w"}, "RELOAD_O": {"src": "r", "t": "w"},
    "ALL_REDUCE_A": {"t": "m"}, "ALL_GATHER_A": {"src": "r", "t": "w"}, "REDUCE_SCATTER_A": {"src": "r", "t": "w"},
    "ALL_TO_ALL_A": {"src": "r", "t": "w"},
    **{s: {"t": "r"} for s in RECV_OF}, **{r: {"t": "w"} for r in RECV_OF.values()}}
REPEATS = frozenset((op, role) for op in JOBS for role in ("x", "dy", "t", "kv")) | {("B", "dw"), ("W", "dw")}
GATHERS = frozenset(("ALL_GATHER", "BROADCAST"))
TEAM = frozenset(("ALL_REDUCE_A", "ALL_GATHER_A", "REDUCE_SCATTER_A", "ALL_TO_ALL_A"))
COLLECTIVES = GATHERS | TEAM | {"ALL_REDUCE", "ALL_REDUCE_N", "REDUCE_SCATTER", "REDUCE"}
ROOTED = frozenset(("BROADCAST", "REDUCE"))
HERE = frozenset(("U", "NORM", "TAKE", "COPY", "ZERO"))  # on the compute lane, besides the jobs
OFFLOADS, RELOADS = frozenset(("OFFLOAD_S", "OFFLOAD_O")), frozenset(("RELOAD_S", "RELOAD_O"))
HOST_COPIES = OFFLOADS | RELOADS
NO_BATCH = HERE | COLLECTIVES - TEAM | {"SEND_G", "RECV_G", "SERVE", "FETCH", "ADD", "OFFLOAD_O", "RELOAD_O"}
NUMBERED = GATHERS | TEAM | {"SEND_T", "RECV_T", "SERVE", "FETCH", "COPY",  # and what moves gradients: pieces, rounds
                      "SEND_G", "RECV_G", "ADD", "TAKE", "ALL_REDUCE", "REDUCE_SCATTER", "REDUCE"}
OF_RANK = frozenset(("work", "norm"))
ON_HOST = frozenset(("hstash", "hinput", "hopt"))
BATCHED = frozenset(("act", "grad", "stash", "wstash", "input", "token", "mid", "kv", "dkv", "hstash", "rstash", "hinput", "rinput"))


class Unreadable(Exception):
    pass


class Buf:
    __slots__ = ("name", "kind", "s", "b", "inst", "off", "size", "grows")

    def on_host(self):
        return self.kind in ON_HOST


class Ins:
    """args: (role, adds, buffer, piece). A piece (i, n) is the i-th of n equal ones; (0, 1) is the whole buffer. part:
    the part of a backward, written the same way."""
    __slots__ = ("op", "s", "b", "part", "inst", "peer", "by", "args", "waits", "frees", "lane", "rank", "n", "label",
                 "version", "section", "waited", "again")  # again: what an earlier part has begun to make, (buffer, piece)

    def __str__(self):
        return f"rank {self.rank}: {self.label}"


class Rank:
    __slots__ = ("lanes", "ins", "arena", "host", "bufs", "places")  # places: by set, its Place


class Homes:
    """The owners of a set of weights: lists of `size` ranks, which are replicas."""
    __slots__ = ("lists", "size", "zero")

    def shares(self):
        """Returns into how many pieces a shard is divided; a different replica updates each."""
        return len(self.lists) if self.zero else 1


class Program:
    __slots__ = ("workers", "stages", "batches", "slices", "attends", "tied", "tables", "shared", "sets", "bare",
                 "updates", "period", "homes", "needs", "ranks", "strict", "wrong", "sizes", "teams",
                 "contributed")

    def embeds(self, s):
        return self.stage_of(s) == 0

    def unembeds(self, s):
        return self.tied is not None and self.stage_of(s) == self.stage_of(self.tied)

    def stage_of(self, s):
        return self.teams.member[s][0] if self.teams else s

    def set_of(self, op, s, role):
        """Returns the set that a job's operand belongs to, or None if it has no such operand."""
        table = op in "BW" if role == "dv" else self.unembeds(s) and op != "W" or self.embeds(s) and op in "FR"
        its = {"w": s, "dw": s, "u": self.shared.get(s), "du": self.shared.get(s)}
        found = (self.tables.get(s) if table else None) if role in ("v", "dv") else its[role]
        return None if found in self.bare else found

    def users(self, s):
        """Returns the stages that add to the gradient of a set."""
        if s < self.stages:
            return {s}
        return {x for sets in (self.tables, self.shared) for x in sets if sets[x] == s}


# ---- reading ----

LABEL = re.compile(r"([A-Z_]+) (\d+)(?: (\d+)(?:\[(\d+)/(\d+)\])?)?(?:#(\d+))?(?: (to|from) (\d+))?$")
HEAD = re.compile(r"([A-Z_]+ \d+(?: \d+(?:\[\d+/\d+\])?)?(?:#\d+)?(?: (?:to|from) \d+)?)(?: v(\d+))?(?: by (ring|tree))?"
                  r"((?: [a-z]+\+?=\S+)*)"
                  r"(?: wait\(([^()]*)\))?(?: free\((.*)\))?$")
NAME = re.compile(r"(weight|wshard|wgrad|gshard|gown|opt|work|act|grad|stash|wstash|input|token|mid|kv|dkv|hstash|rstash|hinput|rinput|"
                  r"hopt|norm)(?:\((\d+)(?:,(\d+))?\))?(?:#(\d+))?$")
OPERAND = re.compile(r"([^\[\]]*)(?:\[(\d+)/(\d+)\])?$")
BUF = re.compile(r"(\S+) (-|\d+) (\d+)(?: grows (\S+))?$")


def need(ok, why):
    if not ok:
        raise Unreadable(why)


def read_buf(p, line):
    m = BUF.match(line)
    need(m, "memory: " + line)
    n = NAME.match(m[1])
    need(n, "name: " + m[1])
    b = Buf()
    b.name, b.kind, b.grows = m[1], n[1], m[4]
    b.s, b.b, b.inst = (None if x is None else int(x) for x in (n[2], n[3], n[4]))
    need((b.kind in OF_RANK) == (b.s is None) and (b.kind in BATCHED) == (b.b is not None), "name: " + m[1])
    need(b.s is None or b.s < (p.stages if b.kind in BATCHED else p.sets), "stage: " + m[1])
    need(b.b is None or b.b < p.batches, "microbatch: " + m[1])
    need(b.inst is None or b.kind in ("weight", "wgrad", "gshard", "token", "mid", "work"), "instance: " + m[1])
    b.off, b.size = (-1 if m[2] == "-" else int(m[2])), int(m[3])
    need(max(b.off, b.size) < 1 << 63, "number: " + line)
    return b


def read_ins(p, r, lane, line):
    m = HEAD.match(line)
    need(m, "instruction: " + line)
    x = Ins()
    x.label, x.rank, x.lane = m[1], r, lane
    g = LABEL.match(m[1])
    need(g and g[1] in ACCESS, "label: " + line)
    x.op = g[1]
    x.s, x.b, x.inst, x.peer = (None if v is None else int(v) for v in (g[2], g[3], g[6], g[8]))
    x.part = (int(g[4]), int(g[5])) if g[4] else (0, 1)
    exchanges = p.teams is not None and x.op in JOBS and p.teams.exchange[x.s].get(x.op)
    need(not g[4] or (x.op in ("B", "W") or exchanges) and x.part[0] < x.part[1] and 1 < x.part[1] <= 255, "part: " + line)
    x.version, x.by = (None if m[2] is None else int(m[2])), m[3]
    update = p.updates is not None and x.op == "U"  # with several updates, its number takes the microbatch's place
    reads = x.s not in p.bare or p.shared.get(x.s, x.s) not in p.bare
    need((x.version is not None) == (p.updates is not None and x.op in "FRIB" and reads), "version: " + line)
    need((x.op in COLLECTIVES) == (x.by is not None), "by: " + line)
    message = x.op in SENDS or x.op in RECVS or x.op == "ADD" or x.op in ROOTED
    need(g[7] is None or (g[7] == "to") == (x.op in SENDS or x.op == "REDUCE"), "label: " + line)
    need((x.op in NO_BATCH and not update) == (x.b is None) and message == (x.peer is not None), "label: " + line)
    need(x.inst is None or x.op in NUMBERED or x.op == "ZERO" and p.updates is not None, "instance: " + line)
    need(x.s < (p.sets if x.op in NO_BATCH else p.stages), "stage: " + line)
    need(not update or x.b < p.batches // p.updates[x.s], "update: " + line)
    need((x.b is None or x.b < p.batches) and (x.peer is None or x.peer < p.workers), "label: " + line)
    x.args = []
    for word in m[4].split():
        role, name = word.split("=", 1)
        adds = role.endswith("+")
        role = role.rstrip("+")
        need(role in ACCESS[x.op] and (not adds or ACCESS[x.op][role] == "a"), "operand: " + word)
        need((x.op, role) in REPEATS or all(a[0] != role for a in x.args), "twice: " + word)
        o = OPERAND.match(name)
        need(o, "operand: " + word)
        piece = (int(o[2]), int(o[3])) if o[2] else (0, 1)
        need(not o[2] or piece[0] < piece[1] and 1 < piece[1] <= 4096, "piece: " + word)
        x.args.append((role, adds, o[1], piece))
    x.waits = m[5].split(", ") if m[5] is not None else []
    x.frees = m[6].split(" ") if m[6] is not None else []
    return x


def takes(kind, op, peer, x_peer):
    if kind == "compute":
        return op in JOBS or op in HERE
    if kind in ("gather", "group", "team"):
        return op in COLLECTIVES and kind == ("gather" if op in GATHERS else "team" if op in TEAM else "group")
    if kind in ("offload", "reload"):
        return op in (OFFLOADS if kind == "offload" else RELOADS)
    comm = op in SENDS or op in RECVS or op == "ADD"
    if kind == "messages":
        return comm
    return peer == x_peer and (comm if kind == "peer" else (op in SENDS) == (kind == "send") and comm)


def read_issue(p, rank, lanes, words):
    rank.ins, at, section = [], [0] * len(lanes), 0
    for w in words:
        if w == "|" and p.period and section < 2:
            section += 1
            continue
        lane, _, count = w.partition("*")
        lane, count = int(lane), int(count or 1)
        need(lane < len(lanes) and at[lane] + count <= len(lanes[lane]), "issue: " + w)
        for x in lanes[lane][at[lane]:at[lane] + count]:
            x.section = section
            rank.ins.append(x)
        at[lane] += count
    need(all(a == len(l) for a, l in zip(at, lanes)), "issue: too short")
    need(not p.period or section == 2, "issue: marks")


def skip_bare(p):
    """Sets without weights have no homes."""
    while len(p.homes) in p.bare:
        h = Homes()
        h.zero, h.lists, h.size = 0, [], 1
        p.homes.append(h)


def read_sets(p, lines, shares):
    """Reads the sets of weights that follow the stages' own, and the sets without weights."""
    if p.teams is None:
        need(not shares, "shared, without a team")
        p.tables = {} if p.tied is None else {0: p.stages, p.tied: p.stages}
        p.shared, p.sets = {}, p.stages + len(set(p.tables.values()))
    else:
        p.tables, p.shared, p.sets = p.teams.tables(p.tied), p.teams.shared(), p.teams.sets()
    p.bare = set()
    if lines[0].startswith("bare "):
        listed = [int(s) for s in lines.pop(0)[len("bare "):].split(" ")]
        need(listed == sorted(set(listed)) and listed[-1] < p.sets, "bare")
        p.bare = set(listed)


def read_homes(p, lines, i):
    """Reads one line per set with weights, if there are any."""
    p.homes = None
    while lines[i].startswith("homes "):
        p.homes = p.homes or []
        m = re.match(r"homes (\d+)(?: zero ([12]))?:((?: \d+)+(?:,(?: \d+)+)*)$", lines[i])
        need(m, lines[i])
        skip_bare(p)
        need(int(m[1]) == len(p.homes) < p.sets, lines[i])
        h = Homes()
        h.zero = int(m[2] or 0)
        h.lists = [[int(w) for w in one.split()] for one in m[3].split(",")]
        h.size = len(h.lists[0])
        all_ = [r for one in h.lists for r in one]
        need(len(set(all_)) == len(all_) == h.size * len(h.lists), "a rank twice, or lists of two lengths: " + lines[i])
        need(all(len(one) == h.size for one in h.lists) and max(all_) < p.workers, lines[i])
        p.homes.append(h)
        i += 1
    if p.homes is not None:
        skip_bare(p)
    need(p.homes is None or len(p.homes) == p.sets, "homes of some sets only")
    return i


def read_updates(p, lines, i):
    """Reads the microbatches of each stage's updates, if these are jobs, and the period: (microbatches,
    repetitions)."""
    p.updates, p.period = None, None
    m = re.match(r"updates((?: \d+)+)$", lines[i])
    if not m:
        return i
    p.updates = [int(w) for w in m[1].split()]
    need(len(p.updates) == p.stages and all(0 < u and p.batches % u == 0 for u in p.updates), lines[i])
    behind = {table: 0 for table in p.tables.values()} | {s: member for member, s in p.shared.items()}
    p.updates += [p.updates[behind[s]] for s in range(p.stages, p.sets)]  # the same as for the stages that use them
    m = re.match(r"period (\d+) times (\d+)$", lines[i + 1])
    if not m:
        return i + 1
    p.period = int(m[1]), int(m[2])
    need(0 < p.period[0] <= p.batches and 0 < p.period[1] and p.batches + p.period[0] * p.period[1] < 1 << 63, lines[i + 1])
    need(all(p.period[0] % u == 0 for u in p.updates), lines[i + 1])
    return i + 2


def read_slices(p, lines):
    """Turns each slice into a microbatch of its own."""
    p.attends = set(range(p.stages)) if p.slices else set()
    if not p.slices:
        return lines
    need(p.slices > 1, "slices")
    if lines[0].startswith("attention "):
        listed = lines.pop(0)[len("attention "):]
        p.attends = set() if listed == "none" else {int(s) for s in listed.split(" ")}
    p.batches *= p.slices

    def number(m):
        need(int(m[2]) < p.slices, "slice: " + m[0])
        return str(int(m[1]) * p.slices + int(m[2]))
    return re.sub(r"\b(\d+)\.(\d+)\b", number, "\n".join(lines)).split("\n")


def print_slices(p, text):
    """Turns microbatches back into slices."""
    both = lambda b: f"{int(b) // p.slices}.{int(b) % p.slices}"
    text = re.sub(r"\b(\w+\(\d+),(\d+)\)", lambda m: f"{m[1]},{both(m[2])})", text)
    with_batch = "|".join(sorted(set(ACCESS) - NO_BATCH, key=len, reverse=True))
    return re.sub(rf"\b((?:{with_batch}) \d+) (\d+)", lambda m: f"{m[1]} {both(m[2])}", text)


def read(text):
    try:
        text, its_teams = teams.plain(text)
    except (teams.Wrong, IndexError) as e:
        raise Unreadable(str(e)) from e
    lines = text.split("\n")
    need(lines[-1] == "" and lines[0] == "pianola 1", "head")
    need(not re.search(r"(?<!\w)0\d", "\n".join(lines[2:])), "a number with a 0 before it")
    m = re.match(r"program \S+ workers (\d+) stages (\d+) batches (\d+)(?: slices (\d+))?(?: tied (\d+))?( shared)?$", lines[1])
    need(m, "program")
    p = Program()
    p.workers, p.stages, p.batches, p.slices = int(m[1]), int(m[2]), int(m[3]), int(m[4] or 0)
    p.teams = its_teams
    p.tied = None if m[5] is None else int(m[5])
    need(p.tied is None or p.tied < p.stages, "tied")
    rest = lines[2:]
    read_sets(p, rest, m[6] is not None)
    read_ranges(p, rest, need)
    lines[2:] = read_slices(p, rest)
    p.needs, p.ranks, p.wrong, p.strict = None, [], [], []
    i = read_homes(p, lines, read_updates(p, lines, 2))
    while lines[i].startswith("needs "):
        m = re.match(r"needs ([FRIBW]) (\d+) (\d+):(?: (.*))?$", lines[i])
        need(m, lines[i])
        p.needs = p.needs or {}
        job, preds = (m[1], int(m[2]), int(m[3])), []
        for w in (m[4] or "").split(", ") if m[4] else []:
            q = re.match(r"([FRIBW]) (\d+) (\d+)$", w)
            need(q and int(q[2]) < p.stages and int(q[3]) < p.batches, lines[i])
            preds.append((q[1], int(q[2]), int(q[3])))
        if job in p.needs:
            p.wrong.append(f"needs: two lines for {job}")
        p.needs[job] = preds
        i += 1
    for r in range(p.workers):
        i = read_rank(p, r, lines, i)
    need(i == len(lines) - 1, "after the last rank")
    return p


def read_rank(p, r, lines, i):
    rank = Rank()
    rank.lanes, lanes = [], []
    here, edges = f"rank {r} ", set()
    while lines[i].startswith(here + "lane "):
        kind, _, who = lines[i][len(here) + 5:].partition(" ")
        peers = tuple(int(w) for w in who.split(",")) if who else ()
        need((kind == "compute") == (not lanes), "lane: " + lines[i])
        need(kind in ("compute", "messages", "gather", "group", "team", "send", "recv", "peer", "offload", "reload"),
             "lane: " + lines[i])
        need(kind not in ("compute", "messages", "offload", "reload") or not who, "lane: " + lines[i])
        group = kind in ("gather", "group", "team")
        need(not group or len(peers) > 1 and r in peers and len(set(peers)) == len(peers), "group")
        need(kind not in ("send", "recv", "peer") or len(peers) == 1 and peers[0] != r, "lane")
        need(all(q < p.workers for q in peers), "lane: no such rank")
        takes_up = {(kind, peers)} if group or kind in ("offload", "reload") else {
            ("send", q) for q in (peers or range(p.workers)) if kind in ("send", "peer", "messages")} | {
            ("recv", q) for q in (peers or range(p.workers)) if kind in ("recv", "peer", "messages")}
        need(not edges & takes_up, "two lanes for an edge")
        edges |= takes_up
        rank.lanes.append((kind, peers))
        i += 1
        lane = []
        while not lines[i].startswith("rank "):
            x = read_ins(p, r, len(lanes), lines[i])
            need(takes(kind, x.op, peers[0] if peers else None, x.peer), "lane: " + lines[i])
            lane.append(x)
            i += 1
        lanes.append(lane)
    need(lanes and lines[i] == here + "issue", "issue")
    i, words = i + 1, []
    while lines[i] and not lines[i].startswith("rank "):
        words += lines[i].split(" ")
        i += 1
    need(all(re.match(r"\d+(\*\d+)?$|\|$", w) for w in words), "issue")
    read_issue(p, rank, lanes, words)
    m = re.match(here + r"memory (\d+)(?: host ([1-9]\d*))?$", lines[i])
    need(m, "memory")
    rank.arena, rank.host, rank.bufs, i = int(m[1]), int(m[2] or 0), {}, i + 1
    while lines[i] and not lines[i].startswith("rank "):
        b = read_buf(p, lines[i])
        need(b.name not in rank.bufs, "two buffers " + b.name)
        need(b.off < 0 or b.off + b.size <= (rank.host if b.on_host() else rank.arena), "outside the arena: " + b.name)
        rank.bufs[b.name] = b
        i += 1
    resolve(rank)
    rank.places = places(p, r, rank)
    p.ranks.append(rank)
    return i


def resolve(rank):
    named = {}
    for n, x in enumerate(rank.ins):
        need(x.label not in named, "twice: " + x.label)
        named[x.label], x.n = x, n
    for x in rank.ins:
        need(all(w in named and named[w].lane != x.lane for w in x.waits), "wait: " + x.label)
        x.waited = [named[w] for w in x.waits]
        need(all(a[2] in rank.bufs and rank.bufs[a[2]].size % a[3][1] == 0 for a in x.args), "operand: " + x.label)
        need(all(f in rank.bufs for f in x.frees), "no buffer: " + x.label)
    begun = {}
    for x in rank.ins:
        made = begun.setdefault((x.op, x.s, x.b), set())
        x.again = frozenset(made)
        if x.part[1] > 1:
            made.update((name, piece) for role, _, name, piece in x.args if ACCESS[x.op][role] != "r")
    need(all(b.grows is None or b.grows in rank.bufs for b in rank.bufs.values()), "grows")


# ---- printing ----

def label(x):
    out = f"{x.op} {x.s}"
    out += f" {x.b}" if x.b is not None else ""
    out += f"[{x.part[0]}/{x.part[1]}]" if x.part[1] > 1 else ""
    out += f"#{x.inst}" if x.inst is not None else ""
    return out + (f" {'to' if x.op in SENDS or x.op == 'REDUCE' else 'from'} {x.peer}" if x.peer is not None else "")


def line(x):
    out = label(x) + (f" v{x.version}" if x.version is not None else "") + (f" by {x.by}" if x.by else "")
    for role, adds, name, (i, n) in x.args:
        out += f" {role}{'+=' if adds else '='}{name}" + (f"[{i}/{n}]" if n > 1 else "")
    waits = [label(w) for w in x.waited]
    out += f" wait({', '.join(waits)})" if waits else ""
    return out + (f" free({' '.join(x.frees)})" if x.frees else "")


def marks(rank):
    """Finds the sections after a change, keeping as many instructions as possible in the section where they were
    read."""
    n = len(rank.ins)
    fits = lambda at, section: sum((x.section < section) == (i < at) for i, x in enumerate(rank.ins))
    begin = max(range(n + 1), key=lambda at: fits(at, 1))
    return begin, max(range(begin, n + 1), key=lambda at: fits(at, 2))


def issue_lines(rank, period=None):
    words, run = [], []
    at = marks(rank) if period else ()
    for i, x in enumerate(rank.ins + [None]):
        if run and (x is None or x.lane != run[-1] or i in at):
            words.append(str(run[0]) if len(run) == 1 else f"{run[0]}*{len(run)}")
            run = []
        words += ["|"] * at.count(i)
        if x is not None:
            run.append(x.lane)
    return [" ".join(words)] if words else []


def print_program(p):
    out = ["pianola 1", f"program {p.name} workers {p.workers} stages {p.stages} batches {p.batches // (p.slices or 1)}" +
           (f" slices {p.slices}" if p.slices else "") + (f" tied {p.tied}" if p.tied is not None else "") +
           (" shared" if p.teams and p.teams.shares else "")]
    if p.bare:
        out.append("bare " + " ".join(map(str, sorted(p.bare))))
    out += print_ranges(p)
    if p.slices and len(p.attends) < p.stages:
        out.append("attention " + (" ".join(map(str, sorted(p.attends))) or "none"))
    if p.updates:
        out.append("updates " + " ".join(map(str, p.updates[:p.stages])))
    if p.period:
        out.append("period %d times %d" % p.period)
    for s, h in enumerate(p.homes or ()):
        if s in p.bare:
            continue
        lists = ",".join("".join(f" {r}" for r in one) for one in h.lists)
        out.append(f"homes {s}" + (f" zero {h.zero}" if h.zero else "") + ":" + lists)
    for job, preds in p.needs_list:
        out.append(("needs %s %d %d:" % job) + "".join(" %s %d %d," % q for q in preds).rstrip(","))
    for r, rank in enumerate(p.ranks):
        for l, (k, peers) in enumerate(rank.lanes):
            out.append(f"rank {r} lane {k}" + (" " + ",".join(map(str, peers)) if peers else ""))
            out += [line(x) for x in rank.ins if x.lane == l]
        out += [f"rank {r} issue"] + issue_lines(rank, p.period)
        out += [f"rank {r} memory {rank.arena}" + (f" host {rank.host}" if rank.host else "")]
        out += [f"{b.name} {b.off if b.off >= 0 else '-'} {b.size}" + (f" grows {b.grows}" if b.grows else "")
                for b in rank.bufs]
    text = "\n".join(out) + "\n"
    return teams.named(print_slices(p, text) if p.slices else text, p.teams)


# ---- what lasts for the whole step ----

class Place:
    """A rank's place among the homes of a set, in fractions of it: it holds `length` from `begin` on, and updates `own`
    from `own_begin` on. `begin` is None on a rank that is not a home. kept: the names of what lasts."""
    __slots__ = ("begin", "length", "own_begin", "own", "sharded", "weight", "kept")


def places(p, r, rank):
    out = []
    for s in range(p.sets):
        at = Place()
        homes = p.homes[s] if p.homes else None
        size, shares = (homes.size, homes.shares()) if homes else (1, 1)
        at.begin = None if homes or f"weight({s})" not in rank.bufs else Fraction(0)
        at.length, at.own = Fraction(1, size), Fraction(1, size * shares)
        at.own_begin, at.sharded = at.begin, size > 1
        for l, one in enumerate(homes.lists if homes else ()):
            if r in one:
                at.begin = one.index(r) * at.length
                at.own_begin = at.begin + (l * at.own if shares > 1 else 0)
        at.weight = f"wshard({s})" if at.sharded else f"weight({s})"
        two = homes is not None and homes.zero == 2
        gradient = "gown" if two and shares > 1 else "gshard" if at.sharded else "wgrad"
        state = f"hopt({s})" if f"hopt({s})" in rank.bufs else f"opt({s})"  # in one memory or the other, for the whole step
        lasts = () if p.updates else (f"{gradient}({s})",)  # the gradient of one of many updates comes and goes
        at.kept = () if at.begin is None else (at.weight, *lasts, state)
        out.append(at)
    return out


def persists(rank, b):
    return b.kind in OF_RANK or b.s is not None and b.s < len(rank.places) and b.name in rank.places[b.s].kept
