"""Teams in the text form: their members have stages of their own, as 0.1, which are consecutive numbers elsewhere.

plain() converts a text to plain stage numbers and finds the teams; named() converts it back.
"""

import re

KINDS = r"(?:[a-z]+)"
NAME = re.compile(r"\b(" + KINDS + r")\((\d+)(?:\.(\d+))?(?=[,)])")
LABEL = re.compile(r"(?<![\w.])([A-Z][A-Z_]*) (\d+)(?:\.(\d+))?(?![\w.])")
WORDS = {"sum": "ALL_REDUCE_A", "gather": "ALL_GATHER_A", "scatter": "REDUCE_SCATTER_A", "exchange": "ALL_TO_ALL_A"}
JOBS = ("F", "R", "I", "B", "W")
OF_SETS = ("weight", "wshard", "wgrad", "gshard", "gown", "opt", "hopt")  # buffers, and the operations that move or update them
MOVES_SETS = ("U", "NORM", "ALL_REDUCE_N", "ADD", "TAKE", "COPY", "ZERO", "ALL_GATHER", "BROADCAST", "ALL_REDUCE", "REDUCE_SCATTER", "REDUCE",
              "SEND_G", "RECV_G", "SERVE", "FETCH", "OFFLOAD_O", "RELOAD_O")


class Wrong(Exception):
    pass


class Teams:
    """member: per plain stage (name, place, size), place None without a team. exchange: per plain stage and direction,
    the result of operations(). whole: per named stage, whether its team's members have some parameters whole."""

    def __init__(self):
        self.member, self.exchange, self.first, self.whole = [], [], [], []
        self.tied, self.shares = False, False

    def add(self, size, exchange, whole=False):
        s = len(self.first)
        self.whole.append(whole)
        self.first.append(len(self.member))
        for place in range(size):
            self.member.append((s, place if size > 1 else None, size))
            self.exchange.append(exchange)

    def ntables(self):
        return self.member[0][2] if self.tied else 0

    def tables(self, tied):
        """Returns the table of each plain stage: stage 0's, and the unembedding's, whose first member is `tied`."""
        if tied is None:
            return {}
        size = self.size(tied)
        if size != self.ntables():
            raise Wrong("tables of teams of two sizes")
        return {first + i: len(self.member) + i for first in (0, tied) for i in range(size)}

    def shared(self):
        """Returns, for each plain stage with a team, the set that the team shares."""
        if not self.shares:
            return {}
        n, out = len(self.member) + self.ntables(), {}
        for first in self.first:
            if self.size(first) > 1:
                out.update((first + i, n) for i in range(self.size(first)))
                n += 1
        return out

    def sets(self):
        return len(self.member) + self.ntables() + len(set(self.shared().values()))

    def plain(self, s, place, of_set=False):
        """of_set: weights, which a table may have, or weights that a team shares under its stage's name."""
        if s >= len(self.first):
            if s > len(self.first) or not of_set or (place is None) != (self.ntables() < 2) or (place or 0) >= self.ntables():
                raise Wrong(f"stage {s}")
            return len(self.member) + (place or 0)
        size = self.member[self.first[s]][2]
        if of_set and place is None and self.shares and size > 1:
            return self.shared()[self.first[s]]
        if (place is None) != (size == 1) or place is not None and place >= size:
            raise Wrong(f"stage {s}: member {place} of {size}")
        return self.first[s] + (place or 0)

    def name(self, s):
        table = s - len(self.member)
        if 0 <= table < self.ntables():
            return str(len(self.first)) + (f".{table}" if self.ntables() > 1 else "")
        for first in self.first if table >= 0 else ():
            if self.shared().get(first) == s:
                return str(self.member[first][0])
        if table >= 0:
            return f"{s}.0"
        stage, place, _ = self.member[s]
        return str(stage) if place is None else f"{stage}.{place}"

    def first_of(self, s):
        return s - (self.member[s][1] or 0)

    def size(self, s):
        return self.member[s][2]

    def before(self, s):
        """Returns the stage whose act a plain stage reads, and the one whose grad it reads; None if there is none."""
        return self.beside(s, -1)

    def behind(self, s):
        return self.beside(s, 1)

    def beside(self, s, step):
        stage, place, _ = self.member[s]
        if not 0 <= stage + step < len(self.first):
            return None
        first = self.first[stage + step]
        return first + (place or 0) % self.member[first][2]

    def numbers(self, s):
        """Returns (direction, index of its exchange) for a tensor's number, halved."""
        return [(d, n) for d in JOBS for n in range(len(self.exchange[s].get(d, ())))]


def operations(words, line):
    """Returns what a job exchanges between its parts, as (operation, late); None is nothing. The result of a late
    exchange reaches not the next part but the one after it."""
    out = []
    for word in words:
        if word == "late" and out and out[-1][0] and not out[-1][1]:
            out[-1] = out[-1][0], True
        elif word == "-" or word in WORDS:
            out.append((WORDS.get(word), False))
        else:
            raise Wrong(line)
    for i, (_, late) in enumerate(out):
        if late and (i + 1 == len(out) or out[i + 1][0] and not out[i + 1][1]):
            raise Wrong(line)
    return out


def teams_of(lines, stages):
    """Reads the lines of teams; returns them with their number."""
    listed, n = {}, 0
    while lines[2 + n].startswith("team "):
        m = re.match(r"team (\d+) of (\d+)( divided)?(?:: (.*))?$", lines[2 + n])
        if not m or int(m[1]) >= stages or listed and int(m[1]) <= max(listed) or int(m[2]) < 2:
            raise Wrong(lines[2 + n])
        exchange = {}
        for part in m[4].split(", ") if m[4] is not None else ():
            d, *words = part.split(" ")
            behind = exchange and d in JOBS and JOBS.index(d) <= JOBS.index(list(exchange)[-1])
            if d not in JOBS or not words or behind:
                raise Wrong(lines[2 + n])
            exchange[d] = operations(words, lines[2 + n])
        listed[int(m[1])] = int(m[2]), exchange, not m[3]
        n += 1
    if sum(size for size, *_ in listed.values()) > len(lines):
        raise Wrong("more members than lines")
    teams = Teams()
    for s in range(stages if listed else 0):
        teams.add(*listed.get(s, (1, {})))
    return (teams if listed else None), n


def plain(text):
    """Returns (text without teams, Teams or None)."""
    lines = text.split("\n")
    m = re.match(r"(program \S+ workers \d+ stages )(\d+)( .*)$", lines[1]) if len(lines) > 2 else None
    if not m or not lines[2].startswith("team "):
        return text, None
    teams, n = teams_of(lines, int(m[2]))
    teams.tied, teams.shares = " tied " in m[3], m[3].endswith(" shared")
    stage = lambda s, place, of_set: str(teams.plain(int(s), None if place is None else int(place), of_set))
    tied = re.sub(r" tied (\d+)", lambda t: " tied " + str(teams.first[int(t[1])]), m[3])
    out = [lines[0], f"{m[1]}{len(teams.member)}{tied}"]
    for line in lines[2 + n:]:
        if line.startswith("updates "):
            each = line.split(" ")[1:]
            if len(each) != len(teams.first):
                raise Wrong(line)
            line = "updates " + " ".join(each[s] for s, _, _ in teams.member)
        elif line.startswith("homes "):
            line = re.sub(r"^homes (\d+)(?:\.(\d+))?", lambda h: "homes " + stage(h[1], h[2], True), line)
        elif line.startswith("bare "):
            line = re.sub(r" (\d+)(?:\.(\d+))?", lambda h: " " + stage(h[1], h[2], True), line)
        line = NAME.sub(lambda b: f"{b[1]}({stage(b[2], b[3], b[1] in OF_SETS)}", line)
        out.append(LABEL.sub(lambda x: f"{x[1]} {stage(x[2], x[3], x[1] in MOVES_SETS)}", line))
    return "\n".join(out), teams


def named(text, teams):
    if teams is None:
        return text
    lines = text.split("\n")
    head = re.match(r"(program \S+ workers \d+ stages )\d+( .*)$", lines[1])
    tied = re.sub(r" tied (\d+)", lambda t: f" tied {teams.member[int(t[1])][0]}", head[2])
    word = {op: w for w, op in WORDS.items()}
    out = [lines[0], f"{head[1]}{len(teams.first)}{tied}"]
    for s, first in enumerate(teams.first):
        if teams.member[first][1] is not None:
            parts = [" ".join([d, *((word[op] if op else "-") + (" late" if late else "") for op, late in ops)])
                     for d, ops in teams.exchange[first].items()]
            out.append(f"team {s} of {teams.size(first)}" + ("" if teams.whole[s] else " divided") + (": "+ ", ".join(parts) if parts else ""))
    for line in lines[2:]:
        if line.startswith("updates "):
            each = line.split(" ")[1:]
            line = "updates " + " ".join(each[first] for first in teams.first)
        elif line.startswith("homes "):
            line = re.sub(r"^homes (\d+)", lambda h: "homes " + teams.name(int(h[1])), line)
        elif line.startswith("bare "):
            line = re.sub(r" (\d+)", lambda h: " " + teams.name(int(h[1])), line)
        line = NAME.sub(lambda b: f"{b[1]}({teams.name(int(b[2]))}", line)
        out.append(LABEL.sub(lambda x: f"{x[1]} {teams.name(int(x[2]))}", line))
    return "\n".join(out)
