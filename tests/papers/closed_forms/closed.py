"""Compares simulated bubbles, and the scripts' claims about them, with the papers' formulas, over many sizes."""

import json
import subprocess
import sys


def pipeline(p, m, v=1):
    return (p - 1) / (v * m + p - 1)


# Per schedule: its parameters besides workers and batches, the formula, and the least number of microbatches for it.
FORMULAS = {
    "gpipe": ({}, pipeline, lambda p: 1),
    "1f1b": ({}, pipeline, lambda p: 1),
    "zb_h1": ({}, lambda p, m: pipeline(p, m, 3), lambda p: p),
    "zb_h2": ({}, lambda p, m: pipeline(p, m, 3), lambda p: p),
    "zbv": ({}, lambda p, m: pipeline(p, m, 6), lambda p: 2 * p - 2),
    "interleaved": ({"chunks": 3}, lambda p, m: pipeline(p, m, 3), lambda p: p),
    "breadth_first": ({"chunks": 3}, lambda p, m: pipeline(p, m, 3), lambda p: p),
    "hybrid": ({"replicas": 1}, pipeline, lambda p: 1),
    "naive": ({}, lambda p, m: 1 - 1 / p, lambda p: 1),
    "2bp": ({}, lambda p, m: pipeline(p, m, 3), lambda p: p),
    "2bp scheme=gpipe": ({"scheme": "gpipe"}, lambda p, m: 2 * (p - 1) / (3 * m + 2 * (p - 1)), lambda p: 1),
    "terapipe": ({"slices": 3}, lambda p, m: pipeline(p, m, 3), lambda p: 1),
    "seq1f1b": ({"slices": 3}, lambda p, m: pipeline(p, m, 3), lambda p: 1),
}


def report(schedule, **sizes):
    command = [sys.argv[1], "show", f"schedules/{schedule}.lua", "--json"]
    for key, value in sizes.items():
        command += ["-D", f"{key}={value}"]
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)


for name, (more, formula, least) in FORMULAS.items():
    counts = {"hold": 0, "not said": 0}
    for p in range(1, 7):
        for m in range(1, 13):
            r = report(name.split()[0], workers=p, batches=m, **more)
            said, wanted = r.get("closed_bubble"), formula(p, m)
            if m < least(p):
                fine, kind = said is None, "not said"
            else:
                fine = said is not None and abs(said - wanted) < 1e-12 and abs(r["bubble"] - wanted) < 1e-12
                kind = "hold"
            counts[kind] += 1
            if not fine:
                print(f"{name}: {p} ranks, {m} microbatches: {r['bubble']}, said {said}, by the paper {wanted}")
    print(name, " ".join(f"{n} {kind}" for kind, n in counts.items()))

# Groups of R ranks that S = R stages traverse once: each is a pipeline for its share of the microbatches.
for workers, group, batches in (8, 4, 8), (4, 2, 6), (6, 3, 4), (4, 4, 5), (8, 2, 8):
    r = report("lpp", workers=workers, group=group, stages=group, batches=batches)
    wanted = pipeline(group, batches * group // workers)
    print("lpp", workers, group, batches, abs(r["closed_bubble"] - wanted) + abs(r["bubble"] - wanted) < 1e-12)

# As many microbatches as ranks. Chimera: Li 2021, with B = 2 F. Hanayo: 4 (P - 1) of a stage's F, derived from the
# slots.
for name, p, more, wanted in (
    [("chimera", p, {}, (p - 2) / (3 * p / 2 + p - 2)) for p in range(2, 33, 2)]
    + [("hanayo", p, {"waves": v}, 4 * (p - 1) / (6 * v * p + 4 * (p - 1))) for p in range(1, 17) for v in (1, 2, 3)]
):
    r = report(name, workers=p, batches=p, **more)
    if abs(r.get("closed_bubble", 9) - wanted) + abs(r["bubble"] - wanted) > 1e-12:
        print(f"{name}: {p} ranks: {r['bubble']}, said {r.get('closed_bubble')}, wanted {wanted}")
    if "closed_bubble" in (r := report(name, workers=p, batches=2 * p, **more)) and r["closed_bubble"] is not None:
        print(f"{name}: {p} ranks, {2 * p} microbatches: said {r['closed_bubble']}")

# (F&B + B - 3 W) = 2 for each rank of a V but one, and for half as many if two pipelines meet (DeepSeek-AI 2025).
for p in range(1, 9):
    for m in (2 * p, 2 * p + 2, 5 * p + p % 2):
        r = report("dualpipev", workers=p, batches=m)
        if abs(r["closed_bubble"] - pipeline(p, m, 3)) + abs(r["bubble"] - pipeline(p, m, 3)) > 1e-12:
            print(f"dualpipev: {p} ranks, {m} microbatches: {r['bubble']}, said {r['closed_bubble']}")
        if p % 2:
            continue
        r, wanted = report("dualpipe", workers=p, batches=m), (p - 2) / (3 * m + p - 2)
        if abs(r["closed_bubble"] - wanted) + abs(r["bubble"] - wanted) > 1e-12:
            print(f"dualpipe: {p} ranks, {m} microbatches: {r['bubble']}, said {r['closed_bubble']}")
r = report("2bp", workers=5, batches=1, scheme="naive")
print("2bp naive", abs(r["closed_bubble"] - r["bubble"]) < 1e-12, "closed_bubble" in report("2bp", workers=5, batches=2, scheme="naive"))
print("dualpipe, overlapped:", report("dualpipe", workers=4, batches=8, overlap=0.5).get("closed_bubble"))
