#!/usr/bin/env bash
# Shows where one eager step of a one-block GPT-2 spends its time, kernel by kernel, from Nsight Compute's counters.
# Then prints everything that ncu knows about three kernels: those that take longest while they keep neither the
# multiprocessors nor memory 60 % busy.
#
#   tests/gpu/device/kernels.sh DIR     MODEL, FLAGS, CONTEXT as in bench.sh, but one block; ROWS: 4; one microbatch
#
# All blocks run the same kernels. ncu saves and restores the memory that a kernel may write, so it is slow if a rank
# has much of it: twelve blocks, or 32 rows of one, took more than 80 s on an H200. ncu replays each kernel alone and
# flushes the caches before it, so its times are longer than those within a step.
cd "$(dirname "$0")/../../.." || exit 2
. tests/gpu/device/lib.sh
command -v ncu >/dev/null || { echo "ncu is not here: nothing was measured" && exit 1; }
MODEL=${MODEL:-schedules/models/gpt2.lua} FLAGS=${FLAGS:--D size=124M -D layers=1 -D precision=bf16}
# shellcheck disable=SC2086
ncu() { # OPTIONS...: profiles one step
    command ncu --clock-control none "$@" "$PIANOLA" run schedules/serial.lua -D stages=1 -D batches=1 --model "$MODEL" $FLAGS \
        -D context="${CONTEXT:-1024}" -D rows="${ROWS:-4}" --steps 1 --no-graph --device cuda 2>&1
}

trap 'tail -n 5 "$room/csv"; exit 1' TERM # shows the running kernel if a limit ends ncu
ncu --section SpeedOfLight --section Occupancy --csv >"$room/csv" || { tail -n 5 "$room/csv" && exit 1; }
trap - TERM
python3 - "$room/csv" "$room/slow" <<'PYTHON' || exit 1
import csv, sys

lines = open(sys.argv[1], errors="replace").read().splitlines()
start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
if start is None:
    sys.exit("ncu wrote no table: " + (lines[-1] if lines else "nothing"))
MICROSECONDS = {"ns": 1e-3, "nsecond": 1e-3, "us": 1, "usecond": 1, "ms": 1e3, "msecond": 1e3, "s": 1e6, "second": 1e6}
launches = {}
for row in csv.DictReader(line for line in lines[start:] if line.startswith('"')):
    if not row["Metric Name"]:
        continue  # advice
    value = float(row["Metric Value"].replace(",", ""))
    if row["Metric Name"] == "Duration":
        value *= MICROSECONDS[row["Metric Unit"]]
    launches.setdefault((row["ID"], row["Kernel Name"]), {})[row["Metric Name"]] = value
kernels = {}
for (_, name), metrics in launches.items():
    kernels.setdefault(name, []).append(metrics)

def total(runs):
    return sum(m["Duration"] for m in runs)

def mean(runs, metric):  # weighted by time
    return sum(m.get(metric, 0) * m["Duration"] for m in runs) / total(runs)

whole = sum(total(runs) for runs in kernels.values())
print("%d kernels, %.1f us alone, one after the other" % (len(launches), whole))
print("%5s %10s %6s %7s %7s %9s  %s" % ("count", "us", "share", "SM", "memory", "occupancy", "kernel"))
slow = []
for name, runs in sorted(kernels.items(), key=lambda item: -total(item[1])):
    sm, memory = mean(runs, "Compute (SM) Throughput"), mean(runs, "Memory Throughput")
    print("%5d %10.1f %5.1f%% %6.1f%% %6.1f%% %8.1f%%  %s" % (
        len(runs), total(runs), 100 * total(runs) / whole, sm, memory, mean(runs, "Achieved Occupancy"), name[:90]))
    if max(sm, memory) < 60:
        slow.append(name.split("(")[0].split("<")[0].split(" ")[-1].split("::")[-1])
open(sys.argv[2], "w").write("".join(name + "\n" for name in dict.fromkeys(slow)))
PYTHON
while read -r name; do
    echo
    echo "---- $name, its first launch ----"
    ncu --set full --kernel-name "$name" --launch-count 1 | sed '/^==PROF==/d'
done < <(head -n 3 "$room/slow")
