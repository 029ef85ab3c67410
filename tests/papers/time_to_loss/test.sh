#!/usr/bin/env bash
# Time to loss: PipeDream's claim, and the price of asynchronous data parallelism (Narayanan 2019, "PipeDream:
# Generalized Pipeline Parallelism for DNN Training", sections 2.1 and 5), on a GPT and a real text. Gigabit Ethernet
# joins four CPUs of 57 GFLOP/s, so an all-reduce of all gradients takes seven times as long as a microbatch.
#
# Measured with 1800 microbatches; the target is ASP's loss at the end:
#
#     schedule        staleness  loss at the end  to the target: s  microbatches
#     model_parallel          0           2.3512            0.5971           491    one machine's statistics
#     pipedream             0-3           2.3909            0.1829           600
#     bsp                     0           2.4088            0.7854           724    a quarter of the updates
#     pipedream_2bw           1           2.4621            0.3042           960    that, and a delay of one
#     asp                 17-21           2.6637            0.7790          1800
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
. tests/support/pictures.sh
zcat < /usr/share/dictd/devil.dict.dz >"$room/devil.txt"
gpt=(--model schedules/models/gpt.lua -D width=32 -D context=32 -D rows=2 -D lr=3e-3)
ethernet=(--cluster schedules/clusters/latency.lua -D flops=57e9 -D bandwidth=125e6 -D latency=50e-6)
steps=(-D batches=600 --data "$room/devil.txt" --steps 3)
at() { for name; do echo "schedules/$name.lua"; done; }

timeout 300 "$PIANOLA" compare $(at model_parallel bsp pipedream pipedream_2bw asp serial) --train --json -o "$room/loss.svg" \
    "${gpt[@]}" "${ethernet[@]}" "${steps[@]}" >"$room/json" 2>"$room/err" || cat "$room/err"

# Recomputes all figures from the curves.
python3 - "$room/json" >"$room/figures" <<'PY'
import json, sys
t = json.load(open(sys.argv[1]))
last = {}
for s in t["schedules"]:
    s["each"] = s["curve"][0][0]
    s["flat"] = [row[1] for row in s["curve"] for _ in range(s["each"])]  # an update's mean for each of its microbatches
    last[s["schedule"]] = sum(s["flat"][-t["window"]:]) / t["window"]
target = max(last.values())
for s in t["schedules"]:
    above = 0
    for k in range(len(s["curve"])):
        n = (k + 1) * s["each"]
        if n < t["window"] or sum(s["flat"][n - t["window"]:n]) / t["window"] > target + 1e-9:
            above = k + 1
    s["mine"] = (last[s["schedule"]], above + 1, (above + 1) * s["each"], s["curve"][above][3])
    said = (s["loss"], s["target_updates"], s["target_microbatches"], s["target_predicted"])
    same = all(abs(a - b) < 1e-5 for a, b in zip(s["mine"], said))
    print(s["schedule"], "agrees" if same else "says %s, not %s" % (said, s["mine"]),
          sum(row[0] % s["each"] or row[3] <= before[3] for before, row in zip(s["curve"], s["curve"][1:])), len(s["flat"]))
print("target", abs(t["target"] - target) < 1e-5, t["window"], t["left_out"][0]["schedule"])
loss = {s["schedule"]: s["mine"][0] for s in t["schedules"]}
samples = {s["schedule"]: s["mine"][2] for s in t["schedules"]}
time = {s["schedule"]: s["mine"][3] for s in t["schedules"]}
for claim in [
    # in time
    "time['pipedream'] < 0.5 * time['bsp']",                        # measured: 0.23
    "time['pipedream'] < 0.5 * time['model_parallel']",             # 0.31
    "1.1 * time['pipedream'] < time['pipedream_2bw'] < 0.7 * time['bsp']",  # 1.66, 0.39
    # in microbatches
    "abs(loss['pipedream'] - loss['model_parallel']) < 0.12",       # 0.04
    "samples['pipedream'] < 1.5 * samples['model_parallel']",       # 1.22
    "loss['pipedream'] < loss['pipedream_2bw']",                    # by 0.07
    "loss['asp'] > loss['bsp'] + 0.12",                             # 0.25
    "loss['asp'] > loss['model_parallel'] + 0.17",                  # 0.31
    "loss['asp'] > loss['pipedream_2bw'] + 0.06",                   # 0.20
    "samples['asp'] > 1.5 * max(samples['bsp'], samples['model_parallel'])",  # 2.5
]:
    print("holds" if eval(claim) else f"does not hold: {claim}; {loss}; {time}; {samples}")
PY
expect "figures recomputed from the curves" "$(for s in model_parallel bsp pipedream pipedream_2bw asp; do echo "$s agrees 0 1800"; done)
target True 180 serial" "$(grep -v hold "$room/figures")"
expect "claims that hold" 10 "$(grep -c '^holds$' "$room/figures")"
grep 'does not' "$room/figures"

# The table of schedules/time-to-loss.md without losses, whose last digits depend on the processor.
expect "the table in schedules/time-to-loss.md" "$(python3 -c 'import json, sys
for s in json.load(open(sys.argv[1]))["schedules"]:
    stale = sorted({min(s["staleness"]), max(s["staleness"])})
    print(s["schedule"], "-".join(map(str, stale)), s["updates"], "%.4g" % s["predicted"])' "$room/json")" \
    "$(awk 'NF == 8 && $3 ~ /^[0-9]+$/ { print $1, $2, $3, $5 }' schedules/time-to-loss.md)"

# One machine that updates after each microbatch learns the same as model parallelism. `run --losses` writes the curve
# that compare trained and predicted.
run() { timeout 120 "$PIANOLA" run "$1" "${gpt[@]}" "${ethernet[@]}" "${steps[@]}" --losses "$room/losses" "${@:2}" >/dev/null 2>&1; }
curve() { python3 - "$room/json" "$room/losses" "$@" <<'PY'
import json, sys
curve = next(s["curve"] for s in json.load(open(sys.argv[1]))["schedules"] if s["schedule"] == sys.argv[3])
rows = [line.split("\t") for line in open(sys.argv[2])][1:]
far = max(abs(float(r[2]) - c[1]) for r, c in zip(rows, curve, strict=True))
late = max(abs(float(r[3]) / c[3] - 1) for r, c in zip(rows, curve, strict=True))
print(far < float(sys.argv[4]), late < 1e-6)
PY
}
run schedules/pipedream.lua
expect "PipeDream by run --losses: losses and times" "True True" "$(curve pipedream 1e-5)"
run schedules/bsp.lua -D workers=1
expect "one machine: losses, but not times" "True False" "$(curve model_parallel 1e-3)"

well_formed "the picture" "$room/loss.svg"
as_png "the picture" "$room/loss.svg"
expect "two panels of five lines, each with a circle where it reaches the target" "10 10" \
    "$(grep -c '^<path class="z"' "$room/loss.svg") $(grep -c '^<circle' "$room/loss.svg")"
# The axis runs from x = 64 to x = 464, which is the last update of all, here of model parallelism.
expect "each circle is at its time" "" "$(python3 - "$room/json" "$room/loss.svg" <<'PY'
import json, re, sys
t = json.load(open(sys.argv[1]))
most = max(s["curve"][-1][3] for s in t["schedules"])
at = re.findall(r'<circle.* cx="([0-9.]*)".*<title>(.*): at the target after (.*) s<', open(sys.argv[2]).read())
for s, (x, name, time) in zip(t["schedules"], at, strict=True):
    when = s["target_predicted"]
    if name != s["schedule"] or abs(float(x) - 64 - 400 * when / most) > 0.01 or abs(float(time) - when) > 1e-5 * when:
        print(s["schedule"], x, name, time)
PY
)"

# ---- two small trainings: the table, the target, the same bytes ----

small=(--train "${ethernet[@]}" --model schedules/models/integers.lua -D width=96 -D batches=24 --steps 2)
table() { "$PIANOLA" compare $(at pipedream bsp apart) "${small[@]}" "$@" 2>/dev/null; }
table -o "$room/a.svg" >"$room/a"
table -o "$room/b.svg" >"$room/b"
expect "the same bytes twice" "" "$(cmp "$room/a" "$room/b" 2>&1; cmp "$room/a.svg" "$room/b.svg" 2>&1)"
expect "the table" "4 ranks, 2 steps of 24 microbatches; losses are means over the last 4 microbatches
pipedream 0-3 48
bsp 0 12
apart 6 ranks, not 4: it has no parameter workers" \
    "$(awk 'NR == 1; /^(pipedream|bsp) / { print $1, $2, $3 } /^  / { $1 = $1; print }' "$room/a")"
expect "a target that no schedule reaches" "never never" "$(table --target -1 | awk '/^(pipedream|bsp) / { print $6 }' | paste -sd' ')"
expect "a target that all reach at once" \
    "4 4" "$(table --target 1e30 | awk '/^(pipedream|bsp) / { print $8 }' | paste -sd' ')"
expect "Markdown" 3 "$(table --markdown | grep -c '^| \(schedule\|pipedream\|bsp\)  *|')"

# ---- errors ----

# refused WANTED ARGS...
refused() {
    local got
    got=$("$PIANOLA" compare schedules/bsp.lua "${@:2}" 2>&1 >"$room/out")
    expect "compare ${*:2}" "2 pianola: error: $1" "$? $got"
}
refused "--train needs a model: give one with --model, e.g. --model schedules/models/gpt.lua" --train
refused "--train compares times in seconds: give a cluster that says how fast its ranks are, e.g. --cluster \
schedules/clusters/nodes.lua, or latency.lua with -D flops=1e12" --train --model schedules/models/gpt.lua
refused "--data needs --train" --data "$room/devil.txt"
refused "--output needs --train" -o "$room/x.svg"
refused "--target needs --train" --target 2
refused "--output -: the table goes to stdout; name a file for the picture" --train -o -
refused "--train and --sort exclude each other: --train prints a table of losses instead" --train --sort gap
refused "--train and --steady exclude each other: --train prints a table of losses instead" --train --steady
refused "--target low: expected a loss, such as 2.5" --train --target low
refused "schedules/bsp.lua: this file is an input; name another one to write to" --train -o schedules/bsp.lua
finish
