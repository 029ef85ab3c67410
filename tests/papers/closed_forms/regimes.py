"""Rahimi 2025's two regimes of looped pipelines, through the real command: regimes.py PIANOLA. Prints differences from
the paper, and the number of sizes tried. L is in units of F + B; G groups of R ranks share the microbatches."""

import json
import subprocess
import sys


def report(schedule, **sizes):
    command = [sys.argv[1], "show", f"schedules/{schedule}.lua", "--json"]
    for key, value in sizes.items():
        command += ["-D", f"{key}={value}"]
    r = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return r["makespan"] / 3, r["throughput"], max(k["peak_activations"] for k in r["ranks"])


def check(what, sizes, got, wanted):
    if abs(got - wanted) > 1e-9:
        print(f"{what} of {sizes}: {got}, not {wanted}")


# W = eps S B, G = eps B, R = S: each group is a pipeline of 1 / eps microbatches. L = S + 1/eps - 1 for any number of
# groups. The paper counts 1/eps activations. Its own order, oldest batch first, stops at 3 S - 2 of them, since by then
# backwards have returned. With a cap (1F1B's order, hybrid.lua), S suffice for the same latency.
regime = 0
for stages in (2, 3, 4, 8):
    for each in (1, 2, 3, 4, 8, 12, 24):
        for groups in (1, 3):
            sizes = dict(workers=stages * groups, batches=each * groups)
            latency, rho, peak = report("lpp", group=stages, stages=stages, **sizes)
            check("latency", sizes, latency, stages + each - 1)
            check("throughput", sizes, rho, each / (stages + each - 1))
            check("activations", sizes, peak, min(each, 3 * stages - 2))
            latency, _, peak = report("hybrid", replicas=groups, **sizes)
            check("latency with a cap", sizes, latency, stages + each - 1)
            check("activations with a cap", sizes, peak, min(each, stages))
            regime += 1
print("W = eps S B:", regime)

# The guideline G = B / 2, R = 2 S / M: two microbatches circle through each group, the second just after the first, and
# a rank holds both of its S / R = M / 2 stages. L = S + 1, rho = M / (S + 1). With M = 2 S a group would be a single
# rank, which cannot run two microbatches at once: rho would exceed 1, and L is 2 S.
guideline = alone = 0
for stages in (2, 4, 6, 8, 12):
    for ranks in (r for r in range(1, stages + 1) if stages % r == 0):
        memory = 2 * stages // ranks
        for batches in (2, 6):
            sizes = dict(workers=batches // 2 * ranks, group=ranks, stages=stages, batches=batches)
            latency, rho, peak = report("lpp", **sizes)
            if ranks == 1:
                check("latency of one rank", sizes, latency, 2 * stages)
                alone += 1
                continue
            check("latency", sizes, latency, stages + 1)
            check("throughput", sizes, rho, memory / (stages + 1))
            check("activations", sizes, peak, memory)
            guideline += 1
print("G = B / 2:", guideline, "and of one rank", alone)

# L W M >= B S^2 assumes that every activation lives for all S stages. It holds if each rank has one stage, but not if
# ranks have several: V-Min has half of that memory-time. B S (S + 1) / 2 holds for both.
for name, sizes in [("1f1b", {}), ("gpipe", {}), ("v_min", {}), ("v_min", dict(workers=8, batches=32)), ("zbv", {})]:
    workers, batches = sizes.get("workers", 4), sizes.get("batches", 8)
    stages = workers * (2 if name in ("v_min", "zbv") else 1)
    latency, _, peak = report(name, **sizes)
    used, squared = latency * workers * peak, batches * stages**2
    print(name, workers, "at least B S^2:", used >= squared, "half:", used >= batches * stages * (stages + 1) / 2)
