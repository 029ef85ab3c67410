"""Memory-time from a timeline: judge.py TSV MAKESPAN [--cluster FILE -D latency=X]. Prints the memory-time that
activations occupy and the memory-time they need, as defined in `pianola help report`. Every backward must be B, or I
and W."""

import csv
import sys

rows = list(csv.DictReader(open(sys.argv[1]), delimiter="\t"))
latency = float(sys.argv[-1].split("=")[1]) if len(sys.argv) > 3 else 0.0
job = {}
for row in rows:
    if row["op"] in ("F", "B", "I", "W"):
        key = row["op"], int(row["stage"]), int(row["batch"])
        start, end, rank = float(row["start"]), float(row["end"]), int(row["rank"])
        before = job.get(key)
        job[key] = (before[0] if before else start, end, rank)

held = needed = 0.0
stages = 1 + max(s for _, s, _ in job)
for (op, s, b), (start, end, rank) in job.items():
    if op != "F":
        continue
    last = job.get(("B", s, b)) or job[("W", s, b)]
    held += last[1] - start  # on the rank of F, and from the end of F also on the rank of its last backward
    for t in range(s, stages):  # to the last stage and back
        back = job.get(("B", t, b)) or job[("I", t, b)]
        needed += job[("F", t, b)][1] - job[("F", t, b)][0] + back[1] - back[0]
        if t == stages - 1:
            needed += latency * (job[("F", t, b)][2] != back[2])
        if t > s:
            earlier = job.get(("B", t - 1, b)) or job[("I", t - 1, b)]
            needed += latency * (job[("F", t - 1, b)][2] != job[("F", t, b)][2])
            needed += latency * (earlier[2] != back[2])
    if ("B", s, b) not in job:
        needed += last[1] - last[0]
print(f"{held:.15g} {needed:.15g}")
