"""What each part of a backward contributes to its stage's gradient, from the `parts` lines.

contributed: by (operation, plain stage), for each part [from, to) in bytes of the gradient, or None.
"""

import re


def read_ranges(p, lines, need):
    """Takes the lines from the front of `lines`."""
    p.contributed, last = {}, (-1, "")
    while lines[0].startswith("parts "):
        line = lines.pop(0)
        m = re.match(r"parts ([BW]) (\d+):((?: (?:-|\d+-\d+))+)$", line)
        need(m and int(m[2]) < p.stages and int(m[2]) not in p.bare, line)
        at = (int(m[2]), m[1])
        need(at > last, line)
        last = at
        words = m[3].split()
        ranges = [None if w == "-" else tuple(int(n) for n in w.split("-")) for w in words]
        need(len(ranges) <= 255 and all(r is None or r[0] < r[1] < 1 << 63 for r in ranges), line)
        p.contributed[m[1], int(m[2])] = ranges


def print_ranges(d):
    words = lambda ranges: " ".join("-" if r is None else "%d-%d" % r for r in ranges)
    return [f"parts {op} {s}: {words(ranges)}"
            for (op, s), ranges in sorted(d.contributed.items(), key=lambda item: item[0][::-1])]


def ranges_wrong(p, x, parts):
    """Checks the last part of a job: replays what each part adds to the gradient, byte by byte as far as it matters.
    Reports an error, or None."""
    if not p.contributed or x.part[1] == 1 or [y.part for y in parts] != [(i, x.part[1]) for i in range(x.part[1])]:
        return None  # nothing is said, or Values.follow() reports other parts
    ranges, pieces = p.contributed.get((x.op, x.s), []), [[a for a in y.args if a[0] == "dw"] for y in parts]
    if len(ranges) != x.part[1]:
        return f"has {x.part[1]} parts, and `parts` says it of {len(ranges)}"
    named = [a for part in pieces for a in part]
    size = p.ranks[x.rank].bufs[named[0][2]].size if named else 0
    borders = {0, size} | {n for r in ranges if r for n in r} | {size * i // n for *_, (j, n) in named for i in (j, j + 1)}
    borders = sorted(borders)
    begun = size  # layers run from the last to the first
    for r in ranges:
        if r and r[1] > begun:
            return "a part contributes to what is above the parts before it"
        begun = r[0] if r else begun
    for y, z in zip(borders, borders[1:]):  # all bytes between two borders are alike
        gives = [i for i, r in enumerate(ranges) if r and r[0] <= y and z <= r[1]]
        if len(gives) != 1 or z > size:
            return f"{len(gives)} parts contribute bytes {y} to {z - 1} of {size}"
        if not any(j * size <= y * n and z * n <= (j + 1) * size for *_, (j, n) in pieces[gives[0]]):
            return f"part {gives[0]} contributes bytes {y} to {z - 1}, and does not name them"
    for i, part in enumerate(pieces if size else ()):
        for *_, (j, n) in part:
            if not ranges[i] or ranges[i][0] * n >= (j + 1) * size or ranges[i][1] * n <= j * size:
                return f"part {i} names piece {j} of {n}, and contributes nothing to it"
    return None
