#!/usr/bin/env bash
# Checks the `pianola diff` command: its arguments, output and exit codes, and its use as git's external diff.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
PIANOLA=$(realpath "$PIANOLA")
root=$PWD
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT

# answers CODE ARGS...: expects the exit code; leaves stdout in out and stderr in err.
answers() {
    "$PIANOLA" diff --all "${@:2}" >"$room/out" 2>"$room/err" </dev/null
    local code=$?
    expect "diff ${*:2}: exit code ($(head -n 1 "$room/err"))" "$1" $code
}
# row NAME: prints that row of a table with single spaces.
row() { sed -nE "s/^$1 +//p" "$room/out" | head -n "${2:-1}" | tail -n 1 | tr -s ' '; }

# Any two forms of one schedule are the same: exit 0.
A=generated/1f1b
C="--cluster schedules/clusters/latency.lua -D latency=1"
H="--model schedules/models/gpt.lua --cluster schedules/clusters/nodes.lua -D kind=h100 -D layers=32 -D width=4096 -D heads=32
-D context=4096 -D rows=1 -D precision=bf16 -D workers=8 -D batches=16"
S=schedules/1f1b.lua
"$PIANOLA" show $S --format torch-csv >"$room/1f1b.csv"
"$PIANOLA" show $S --format torch-csv-comms >"$room/dumped"
for x in $S $A $A/streams.txt $A/timeline.tsv "$room/1f1b.csv" "$room/dumped"; do
    for y in $S $A $A/streams.txt $A/timeline.tsv "$room/1f1b.csv"; do
        answers 0 $x $y
        expect "$x and $y" 1 "$(grep -cx 'the same' "$room/out")"
    done
done

# PyTorch's CSV, with or without communication, recognised by name or content, equals the schedule it was made from.
for other in zb_h1 zbv; do
    "$PIANOLA" show schedules/$other.lua --format torch-csv >"$room/$other.csv"
    answers 1 $S schedules/$other.lua
    sed 2,3d "$room/out" >"$room/scripts"
    answers 1 "$room/dumped" "$room/$other.csv"
    expect "$other: the files' names" "A $room/dumped B $room/$other.csv" "$(sed -n 2,3p "$room/out" | paste -sd' ')"
    expect "$other by scripts and by CSVs" "" "$(sed 2,3d "$room/out" | cmp - "$room/scripts" 2>&1)"
done
answers 1 "$room/1f1b.csv" $S -D workers=8
expect "-D applies to the script" 1 "$(grep -c '^makespan  *33 units  *22.5 units' "$room/out")"

# 1F1B and ZB-H1 do the same work; ZB-H1 waits 6 units less for it (P=4, M=8: 33 and 27).
answers 1 $S schedules/zb_h1.lua
expect "makespan" "33 units 27 units -18.2 %" "$(row makespan)"
expect "work" "24 24 =" "$(row work)"
expect "dependency" "9 3 -6" "$(row dependency)"
expect "the accounts add up" "33 27 -6" "$(row makespan 2)"
expect "backwards that B splits" "/ rank 0 compute  0B0  is 0I0 and 0W0" "$(grep -A 1 '^32 backwards' "$room/out" | tail -n 1)"
expect "and no job is on one side only" "" "$(grep -E ' [1-9][0-9]* only in [AB]' "$room/out")"
answers 1 schedules/zb_h1.lua $S
expect "sides swapped: backwards that B joins" "/ rank 0 compute  0I0  and 0W0 are 0B0" "$(grep -A 1 '^32 backwards' "$room/out" | tail -n 1)"
answers 1 $S schedules/zb_h1.lua

# Worked out by hand: with P = 2 and M = 1, F0 F1 B1 B0 run in a row; with latency 1, two messages lie between them.
answers 0 schedules/gpipe.lua schedules/gpipe.lua -D workers=2 -D batches=1 -D latency=1 \
    --cluster schedules/clusters/latency.lua
expect "a script equals itself" "the same" "$(grep -o '^the same' "$room/out")"
"$PIANOLA" compile schedules/gpipe.lua -D workers=2 -D batches=1 -o "$room/near"
answers 1 "$room/near" schedules/gpipe.lua -D workers=2 -D batches=1 -D latency=1 --cluster schedules/clusters/latency.lua
expect "work" "3 3 =" "$(row work)"
expect "dependency" "3 3 =" "$(row dependency)"
expect "link" "0 2 +2" "$(row link)"
expect "the accounts add up" "6 8 +2" "$(row makespan 2)"
expect "messages that take longer" "0 1 -" "$(row RECV_F)"
# With M = 2, rank 0 waits from 2 to 5. First rank 1 computes 1F1, which 0B0 does not need, and then 1B0.
"$PIANOLA" compile schedules/gpipe.lua -D workers=2 -D batches=2 -o "$room/two"
answers 1 "$room/near" "$room/two"
expect "lane" "0 1 +1" "$(row lane)"
expect "dependency" "3 2 -1" "$(row dependency)"

# For reductions and updates of zero length, a timeline alone gives the same answer as the program.
for x in hybrid chimera lpp; do
    answers 1 generated/$x $A
    known=$(row dependency)
    answers 1 generated/$x/timeline.tsv $A
    expect "$x: dependencies, from its timeline alone" "$known" "$(row dependency)"
    expect "$x: no time is unexplained" "" "$(row other)"
done

# A malformed file may repeat a half of one backward many times; that takes no longer than any other repeated job.
for op in I B; do
    awk -v op=$op 'NR == 1 { print; for (i = 0; i < 60000; i++) print "0\tcompute\t" i "\t" i + 1 "\t" op "\t0\t0\t\t\tF" }' \
        $A/timeline.tsv >"$room/$op.tsv"
done
timeout 5 "$PIANOLA" diff "$room/I.tsv" "$room/B.tsv" >"$room/out"
expect "60,000 halves of one backward" 1 $?
awk 'NR == 1 { print "step\t" $0 } NR == 2 { print "1\t0\tcompute\t0\t1\tF\t2147483647\t0\t\t\ts" }' $A/timeline.tsv >"$room/far.tsv"
cut -f 1-9 $A/timeline.tsv >"$room/old.tsv" # the format before the column had a unit
answers 0 "$room/old.tsv" $A/timeline.tsv
expect "a side without a unit" "A names no unit; its times are taken as units, as B's are" "$(grep 'names no unit' "$room/out")"
answers 2 "$room/old.tsv" "$room/far.tsv" --fit "$room/none.lua"
expect "a stage number that is too large" "pianola: error: --fit: $room/far.tsv has a row of stage 2147483647, but only 1 operations" \
    "$(cat "$room/err")"

# A measurement has the prediction's operations, and the table compares the durations of each kind.
awk -F'\t' -v OFS='\t' 'NR > 1 { $3 = 1.5 * $3; $4 = 1.5 * $4 } { print }' $A/timeline.tsv >"$room/slow.tsv"
answers 1 $A "$room/slow.tsv"
expect "bias and spread" "64 96 1.5 (1.5 .. 1.5)" "$(row "B ")"
expect "bias and spread" "32 48 1.5 (1.5 .. 1.5)" "$(row F)"

# The program's own waits explain a measurement of that program; stretching it stretches every account.
for x in fsdp lpp cuckoo v_min dualpipev; do
    awk -F'\t' -v OFS='\t' 'NR > 1 { $3 = 2 * $3; $4 = 2 * $4 } { print }' generated/$x/timeline.tsv >"$room/slow.tsv"
    answers 1 generated/$x "$room/slow.tsv" --json
    expect "$x, stretched: accounts that did not stretch" "" "$(sed -n '/"work"/,/"other"/p' "$room/out" | tr -d ',"' |
        awk '$6 != 2 * $4 || /other/ && $4 > 0')"
done

# A predicted timeline explains every wait: on free links, on links with latency, and on the links of nodes.
expect "no prediction has time that nothing explains" "none" "$(python3 - "$PIANOLA" schedules/*.lua <<'PY'
import json, re, subprocess, sys

LATENCY = "--cluster schedules/clusters/latency.lua -D latency=1".split()
NODES = "--model schedules/models/gpt.lua --cluster schedules/clusters/nodes.lua -D kind=h100".split()
scripts = [s for s in sys.argv[2:] if re.search(r"^return schedule", open(s).read(), re.M)]
seen = found = 0
for cluster in [], LATENCY, NODES:
    for a, b in zip(scripts[::2], scripts[1::2]):
        run = subprocess.run([sys.argv[1], "diff", "--json", a, b, *cluster], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        if run.returncode > 1:
            continue
        d = json.loads(run.stdout)
        seen += 1
        for side in "ab":
            if d["account"]["other"][side] > 1e-9 * d["figures"]["makespan"][side]:
                found += 1
                print(a, b, *cluster, side, d["account"]["other"][side])
print("none" if seen >= 40 and not found else f"{found} of {seen} pairs")
PY
)"
answers 1 schedules/ddp.lua schedules/fsdp.lua $C
expect "gathers that wait for reductions over the same links" "0 2 +2" "$(row lane)"
"$PIANOLA" compile schedules/fsdp.lua $C -o "$room/fsdp" >/dev/null
answers 1 "$room/fsdp/timeline.tsv" $A
expect "the same, from a timeline alone" "2 0 -2" "$(row lane)"
for pair in "ddp fsdp" "1f1b_ddp chimera" "vocab_parallel hybrid"; do
    a=${pair% *} b=${pair#* }
    for x in $a $b; do "$PIANOLA" show schedules/$x.lua --format json >"$room/$x.json"; done
    "$PIANOLA" diff --json schedules/$a.lua schedules/$b.lua >"$room/json"
    expect "$a and $b: bytes of collectives, as the report counts them" "equal" "$(python3 - "$room/$a.json" "$room/$b.json" "$room/json" <<'PY'
import json, sys

*reports, diff = (json.load(open(name)) for name in sys.argv[1:])
wanted = [sum(rank["bytes_received"] for rank in report["ranks"]) for report in reports]
got = diff["figures"]["bytes_sent"]
print("equal" if wanted == [got["a"], got["b"]] and 0 not in wanted else (wanted, got))
PY
)"
done
answers 1 $S schedules/1f1b_offload.lua $H
expect "copies to host memory and back" "0 0.04949 +0.04949" "$(row copies)"

# ---- the sentence, and the causes ----

# first ARGS...: prints the sentence. causes ARGS...: prints the causes, one after the other.
first() { "$PIANOLA" diff "$@" | head -n 1; }
causes() { "$PIANOLA" diff "$@" | sed -n '/^Causes/,/^$/{/^ /p}' | tr -s ' ' | paste -sd'|'; }
expect "ZB-H1" "B is 18.2 % shorter (33 -> 27 units): 32 backwards were split, so rank 0, which ends last, waits 6 units less for its dependencies, and B needs 12.5 % more memory" \
    "$(first $S schedules/zb_h1.lua)"
expect "the sentence, sides swapped" "B is 22.2 % longer (27 -> 33 units): 32 backwards were joined, so rank 0, which ends last, waits 6 units more for its dependencies, and B needs 11.1 % less memory" \
    "$(first schedules/zb_h1.lua $S)"
expect "the cause of that change" " -6 32 backwards were split" "$(causes $S schedules/zb_h1.lua)"
expect "its cause, sides swapped" " +6 32 backwards were joined" "$(causes schedules/zb_h1.lua $S)"
expect "GPipe is as long, and needs 12 activations where 1F1B needs 8" \
    "B takes as long as A (33 units): 22 jobs were reordered, and B needs 50 % more memory" "$(first $S schedules/gpipe.lua)"
# Two stages on two ranks, one microbatch: 0F 1F 1B 0B in a row, 6 units. Stage 1's forward takes 3 units more, its
# backward 1 less. Rank 0's update is not a cause, because nothing waits for it.
cat >"$room/row.lua" <<'LUA'
local p = params { f = 0.0, b = 0.0 }
return schedule { workers = 2, stages = 2, batches = 1, w = function(s) return s, s end, n = function(s, b) return b end,
  cost = function(s, b, d) return d == "F" and 1 + s * p.f or 2 + s * p.b end }
LUA
"$PIANOLA" compile "$room/row.lua" -o "$room/row" >/dev/null
expect "a longer and a shorter job" "B is 33.3 % longer (6 -> 8 units): 1 job takes longer and 1 job takes less time, so rank 0, which ends last, waits 2 units more for its dependencies" \
    "$(first "$room/row" "$room/row.lua" -D f=3.0 -D b=-1.0)"
expect "the causes of a longer and a shorter job" " +3 1 F longer on rank 1: 1F0| -1 1 B shorter on rank 1: 1B0" "$(causes "$room/row" "$room/row.lua" -D f=3.0 -D b=-1.0)"
# Recomputed forwards lie between a rank's own jobs; without them, the jobs that need their results still run. Only the
# last rank's delays a backward: rank 0 recomputes while it waits.
"$PIANOLA" compile $S -D workers=2 -D batches=1 -o "$room/plain" >/dev/null
"$PIANOLA" compile $S -D workers=2 -D batches=1 --recompute -o "$room/again" >/dev/null
expect "jobs that only B has" " +1 2 R only in B, such as 0R0 on rank 0" "$(causes "$room/plain" "$room/again")"
expect "jobs that only A has" " -1 2 R only in A, such as 0R0 on rank 0" "$(causes "$room/again" "$room/plain")"
# Different amounts of work are never compared as they are. F is 1 for a rank's share of the model, as \`compare\` scales it.
expect "more stages" "B cuts the model into 8 stages instead of 4: 13.6 % shorter (33 -> 28.5 units), so rank 0, which ends last, waits 4.5 units less for its dependencies" \
    "$(first $S schedules/interleaved.lua)"
expect "more stages: the only cause" " -4.5 stages 4 -> 8: the cut of the model, and which rank has which part| No finer causes: a stage of A and a stage of B are different parts of the model" \
    "$(causes $S schedules/interleaved.lua)"
for pair in "1f1b interleaved" "dualpipe dualpipev" "1f1b zbv" "zb_h1 v_min"; do
    a=${pair% *} b=${pair#* }
    expect "$a and $b: makespans as \`compare\` prints them" \
        "$("$PIANOLA" compare schedules/$a.lua schedules/$b.lua | awk -v a=$a -v b=$b '$1 == a { x = $3 } $1 == b { y = $3 } END { print x, "units", y, "units" }')" \
        "$("$PIANOLA" diff schedules/$a.lua schedules/$b.lua | awk '/^makespan/ { print $2, $3, $4, $5; exit }')"
done
expect "fewer microbatches" "B cuts the model into 8 stages instead of 4 and runs 4 microbatches instead of 8: 20.0 % longer per microbatch (3.75 -> 4.5 units)" \
    "$(first schedules/chimera.lua schedules/hanayo.lua)"
expect "more ranks" "B runs on 8 ranks instead of 4: 27.3 % more rank time per microbatch (16.5 -> 21 units); 7 jobs were reordered and 32 jobs moved to other ranks" \
    "$(first $S schedules/1f1b_ddp.lua)"
answers 1 $S schedules/1f1b_ddp.lua
expect "more ranks: the table" "4 8 +4" "$(row ranks)"
expect "the cut of a real model" "1 cause, and its effect is the difference" "$("$PIANOLA" diff --json $S schedules/zbv.lua $H |
    python3 -c 'import json, sys
d = json.load(sys.stdin)
print(len(d["causes"]), "cause, and its effect is", "the difference" if d["causes"][0]["effect"] == d["figures"]["makespan"]["delta"] else d["causes"])')"
# A slow rank explains nearly everything; messages, which take a hundredth of a unit longer, are listed after it.
"$PIANOLA" compile $S --cluster schedules/clusters/latency.lua -D latency=0.01 -o "$room/quick" >/dev/null
cat >"$room/slow.lua" <<'LUA'
return cluster { link = function() return 0.02, math.huge end, speed = function(r) return r == 2 and 0.5 or 1 end }
LUA
causes "$room/quick" $S --cluster "$room/slow.lua" | tr '|' '\n' >"$room/said"
expect "a slow rank before slow messages" "B longer on rank 2, F longer on rank 2" "$(head -n 2 "$room/said" | sed -E 's/^ [^ ]* [0-9]* //; s/, such.*//' | paste -sd, | sed 's/,/, /')"
cat >"$room/half.lua" <<'LUA'
return cluster { link = function() return 0.01, math.huge end, speed = function(r) return 2 end }
LUA
expect "equal factors on all ranks are one cause" "32 B take 0.5 times as long, 32 F take 0.5 times as long" \
    "$(causes "$room/quick" $S --cluster "$room/half.lua" | tr '|' '\n' | sed -E 's/^ [^ ]* //' | head -n 2 | sort | paste -sd, | sed 's/,/, /')"
# A last stage that is 2 % slower turns waits for a lane into waits for data, which end at nearly the same time.
cat >"$room/uneven.lua" <<'LUA'
return schedule { workers = 4, stages = 4, batches = 8, w = function(s) return s, s end, n = forward_first,
  cost = function(s, b, d) return (d == "F" and 1 or 2) * (s == 3 and 1.02 or 1) end, order = "strict" }
LUA
expect "reasons for waits that nearly cancel each other" "B is 1.5 % longer (33 -> 33.48 units): 16 jobs take longer, so rank 0, which ends last, waits 0.48 units more" \
    "$(first schedules/gpipe.lua "$room/uneven.lua")"
expect "one unit" "so rank 0, which ends last, waits 1 unit more for its dependencies" "$(first "$room/row" "$room/row.lua" -D f=1.0 | sed 's/.*, so/so/')"
expect "about as long, with less memory" "B takes about as long as A (1.271 -> 1.272 s): 92 jobs were reordered, and B needs 34.4 % less memory" \
    "$(first schedules/gpipe.lua $S $H)"
expect "as long, but the next step follows earlier" "B takes as long as A (27 units): 33 jobs were reordered, and B repeats every 24 units instead of 27 and needs 33.3 % more memory" \
    "$(first schedules/zb_h1.lua schedules/zb_h2.lua)"
answers 1 schedules/zb_h1.lua schedules/zb_h2.lua
expect "the period" "27 units 24 units -11.1 %" "$(row period)"
expect "no cause has an effect: the largest change" " = 33 jobs reordered, of all kinds together" "$(causes schedules/zb_h1.lua schedules/zb_h2.lua)"
cat >"$room/mixed.lua" <<'LUA'
return cluster { link = function() return 0.01, math.huge end, speed = function(r) return 1 / (1 + (r + 1) / 8) end }
LUA
expect "a list that is cut says so" "and 3 smaller; --all lists them" "$("$PIANOLA" diff "$room/quick" $S --cluster "$room/mixed.lua" | grep -o 'and [0-9]* smaller.*')"
# DualPipe runs 12 pairs of a forward and a backward of Chimera at once. With overlap 0, a pair takes as long as its jobs
# one after the other, so that alone changes nothing. With overlap 0.5, it takes 2.5 instead of 3.
expect "pairs that overlap" " = 12 pairs of jobs overlap" "$("$PIANOLA" diff --all schedules/chimera.lua schedules/dualpipe.lua | sed -n 's/^ *\(= .* pairs\)/ \1/p' | tr -s ' ')"
expect "pairs that overlap no longer" " = 12 pairs of jobs overlap no longer" "$("$PIANOLA" diff --all schedules/dualpipe.lua schedules/chimera.lua | sed -n 's/^ *\(= .* pairs\)/ \1/p' | tr -s ' ')"
"$PIANOLA" compile schedules/dualpipe.lua -o "$room/apart" >/dev/null
expect "pairs that take less time count once" " -2 12 F take 0.833 times as long" "$(causes "$room/apart" schedules/dualpipe.lua -D overlap=0.5)"
expect "roots: jobs come first" "2B 2B 2B" "$("$PIANOLA" diff --json "$room/quick" $S --cluster "$room/slow.lua" | python3 -c '
import json, sys
d = json.load(sys.stdin)
print(*[r["op"][:2] for r in d["roots"][:3]])
assert [abs(c["effect"]) for c in d["causes"]] == sorted((abs(c["effect"]) for c in d["causes"]), reverse=True)
assert d["sentence"].startswith("B is ")')"
expect "the changes are listed only with --all" "0 1" "$("$PIANOLA" diff $S schedules/zb_h1.lua | grep -c '^/') $("$PIANOLA" diff $S schedules/zb_h1.lua | grep -c 'all lists them$')"

# Swapping the two sides gives the same figures with opposite signs.
answers 1 schedules/zb_h1.lua $S
expect "dependency, sides swapped" "3 9 +6" "$(row dependency)"
# So do the effects of removed jobs, where jobs overlap, too. Which operations count as reordered depends on the side; so
# does how much other durations matter.
expect "effects, sides swapped" "compared" "$(python3 - "$PIANOLA" <<'PY'
import json, subprocess, sys

SWAPPED = {"only_a": "only_b", "only_b": "only_a"}


def effects(a, b):
    sides = [f"schedules/{name}.lua" for name in (a, b)]
    run = subprocess.run([sys.argv[1], "diff", "--json", *sides], stdout=subprocess.PIPE)
    return {(c["change"], c["op"]): c["effect"] for c in json.loads(run.stdout)["causes"] if c["rank"] is None}


there, back = effects("dualpipev", "interleaved"), effects("interleaved", "dualpipev")
assert len(there) > 8 and {0} < set(there.values())
for (change, op), effect in there.items():
    other = back.get((SWAPPED.get(change, change), op))
    if change not in ("split", "reordered", "longer") and (other is None or effect != -other):
        print(change, op, effect, other)
print("compared")
PY
)"

# The effect of an order is simulated with the other order. If it is the only cause, it explains the whole difference.
expect "an order with more forwards ahead" " -10 15 B reordered, such as 0B0 on rank 0" "$(causes $S schedules/latency_1f1b.lua $C)"
expect "the order of GPipe and of 1F1B" "1 cause, and its effect is the difference" "$("$PIANOLA" diff --json schedules/gpipe.lua $S $H |
    python3 -c 'import json, sys
d = json.load(sys.stdin)
print(len(d["causes"]), "cause, and its effect is", "the difference" if d["causes"][0]["effect"] == d["figures"]["makespan"]["delta"] else d["causes"])')"
# No order of ZB-H2's jobs beats 27, so undoing a part of the order cannot make it shorter.
for pair in "zb_h1 zb_h2" "zb_h2 zb_h1"; do
    a=${pair% *} b=${pair#* }
    "$PIANOLA" diff --json schedules/$a.lua schedules/$b.lua >"$room/json"
    expect "$a, then $b: no undone order is faster than the proved bound" "27 0" "$("$PIANOLA" optimal schedules/$b.lua --json |
        python3 -c 'import json, sys
bound, d = json.load(sys.stdin)["lower_bound"], json.load(open(sys.argv[1]))
print(bound, sum(d["figures"]["makespan"]["b"] - c["effect"] < bound for c in d["causes"]))' "$room/json")"
done

# Only the order changed. Streams have no times, and a timeline has no memory.
answers 1 $A/streams.txt generated/gpipe/streams.txt
expect "reordered" "~ rank 0 compute 0B0 after 0F7 (was after 0F3)" "$(grep -m 1 '^~' "$room/out" | tr -s ' ')"
expect "no times in streams" "" "$(row makespan)"
answers 1 $A generated/gpipe/timeline.tsv
expect "no memory in a timeline" "8 B ? ?" "$(row peak_bytes)"

# A stage moved to another rank, with everything that belongs to it.
cat >"$room/place.lua" <<'END'
local p = params { swap = 0 }
local function at(s) return p.swap == 1 and 1 - s or s end
return schedule { workers = 2, stages = 2, batches = 3,
    w = function(s, b, d) return at(s), at(s) end, n = backward_first }
END
"$PIANOLA" compile "$room/place.lua" -o "$room/straight"
answers 1 "$room/straight" "$room/place.lua" -D swap=1
expect "moved" "> rank 0 compute 0F0 to rank 1 compute" "$(grep -m 1 '^>' "$room/out" | tr -s ' ')"
expect "moved: number of jobs and updates" 14 "$(grep -c '^>' "$room/out")"

# One job that takes a unit longer is the only root, and the table counts everything it delayed.
sed 's/^0\tcompute\t\([0-9.]*\)\t\([0-9.]*\)\tB\t0\t7/0\tcompute\t\1\t34\tB\t0\t7/; s/^0\tcompute\t33\t33\tU/0\tcompute\t34\t34\tU/' \
    $A/timeline.tsv >"$room/late.tsv"
answers 1 $A/timeline.tsv "$room/late.tsv"
expect "one root" "d rank 0 0B7 ends +1 unit; makes B +1 unit; critical; pushed 1" "$(sed -n '/^Roots: 1,/{n;p}' "$room/out" | tr -s ' ')"
expect "the root's duration" "d rank 0 compute 0B7 2 -> 3 units" "$(grep -m 1 '^d rank' "$room/out" | tr -s ' ')"
expect "work" "24 25 +1" "$(row work)"

# Only the memory offsets differ.
sed 's/^F 0 1 \(.*\) wait(.*/F 0 1 \1/' $A/streams.txt >"$room/rewired.txt"
answers 1 $A/streams.txt "$room/rewired.txt"
expect "rewired" 1 "$(grep -c 'some operands, waits or addresses differ' "$room/out")"

# Limits.
answers 0 $S schedules/zb_h1.lua --fail-on makespan:+0,bubble:+0
answers 1 $S schedules/zb_h1.lua --fail-on peak_bytes:+12%
answers 0 $S schedules/zb_h1.lua --fail-on makespan:+0,peak_bytes:+13%
answers 1 schedules/zb_h1.lua $S --fail-on peak_bytes:+0,makespan:+22%
expect "the exceeded limit is named" "pianola: makespan:+22%: 27 in A, 33 in B" "$(cat "$room/err")"

# JSON for programs, Markdown for people; a pipe gets the same bytes each time.
answers 1 $S schedules/zb_h1.lua --json
expect "json" '    "makespan": { "a": 33, "b": 27, "delta": -6 },' "$(grep '"makespan"' "$room/out")"
expect "json: all split backwards" 32 "$(sed -n '/"split"/,/^  \]/p' "$room/out" | grep -cE '"op": "([0-9]B[0-9])".*"is": \["[0-9]I[0-9]", "[0-9]W[0-9]"\]')"
expect "json: no job is only in B" '  "only_b": [],' "$(grep '"only_b"' "$room/out")"
cp "$room/out" "$room/before"
answers 1 $S schedules/zb_h1.lua --json
expect "a second run gives the same bytes" "" "$(cmp "$room/before" "$room/out")"
answers 1 $S schedules/zb_h1.lua --markdown
expect "markdown" "| makespan | 33 units | 27 units | -18.2 % |" "$(grep -m 1 '^| makespan' "$room/out")"

# Errors exit with 2 and name what is wrong and where.
trouble() { # WANTED ARGS...
    answers 2 "${@:2}"
    expect "diff ${*:2}" "pianola: error: $1" "$(head -n 1 "$room/err")"
    expect "diff ${*:2}: stdout has nothing but the error as JSON" "" "$(case " ${*:2} " in *" --json "*) grep -v '^{"schema": 1, "error": ' ;; *) cat ;; esac <"$room/out")"
}
trouble "\`diff\` needs A and B, each a script, PyTorch's CSV, a compiled folder, streams.txt or a timeline; see \`pianola help diff\`" $S
trouble "$room/none: No such file or directory" $S "$room/none"
printf '0F0,,0B0\n0F1,0B1' >"$room/twice.csv"
answers 2 $S "$room/twice.csv"
expect "a CSV that cannot run" "$room/twice.csv:2: error: row 2, column 1: stage 0 is rank 0's, by row 1: a stage belongs to one rank" \
    "$(head -n 1 "$room/err")"
trouble "-: expected streams or a timeline; a schedule is read from a file only" $S -
trouble "-: A and B cannot both be read from stdin" - -
trouble "$room: neither streams.txt nor timeline.0.tsv is in this folder: it was neither compiled nor measured" $S "$room"
trouble "--model is for scripts, and neither side is one" $A generated/gpipe --model schedules/models/gpt.lua
trouble "--lanes is for scripts, and neither side is one" $A generated/gpipe --lanes peer
trouble "two outputs would go to stdout: name another file for one" $S $S --fit - --json
trouble "two outputs would go to $room/twin: name another file for one" $S $S --fit "$room/twin" --svg "$room/twin"
trouble "--json and --markdown exclude each other" $S $S --json --markdown
trouble "-D swap=1: neither script has this parameter" $A $S -D swap=1
trouble "--fail-on speed: expected makespan, bubble, period, peak_bytes, bytes_sent or operations" $S $S --fail-on speed:+1
trouble "--fail-on makespan:2: expected by how much B may exceed A, as in makespan:+2% or makespan:+0" \
    $S $S --fail-on makespan:2
trouble "--fail-on makespan: one side has no such figure: streams have no times, timelines neither memory nor the bytes of collectives" \
    $S $A/streams.txt --fail-on makespan:+0
trouble "the times of $A are in F, but $S has FLOP; a cluster's \`flops\` converts FLOP to seconds" \
    $A $S --model schedules/models/gpt.lua
sed 's/F$/s/' $A/timeline.tsv >"$room/seconds.tsv"
trouble "the times of $A/timeline.tsv are in F, but $room/seconds.tsv has s; a cluster's \`flops\` converts FLOP to seconds" \
    $A/timeline.tsv "$room/seconds.tsv"
cp -R $A "$room/torn"
sed -i '5s/F\t0\t3/F\t0\t9/' "$room/torn/timeline.tsv"
trouble "$room/torn/timeline.tsv:5: this row is not an instruction of the program, which has 0F3 on rank 0 there; compile both again" \
    "$room/torn" $A

# git: a hunk of streams.txt names its rank and lane, and a moved operation is one - line and one + line. As git's
# external diff, the command prints what changed.
cd "$room" || exit 2
mkdir repository && cd repository || exit 2
git init -q . && git config user.name t && git config user.email t@t && git config core.pager cat
cp "$root/.gitattributes" .
eval "$(sed -n 's/^#   \(git config .*\)/\1/p' .gitattributes)"
cp -R "$root/$A" 1f1b
git add -A && git commit -qm one
awk '/^F 2 5 /{ held = $0; next } { print } /^B 2 4 /{ print held }' "$root/$A/streams.txt" >1f1b/streams.txt
git diff -U1 >"$room/out"
expect "one moved operation" "-F 2 5 +F 2 5" "$(grep -E '^[-+][A-Z]' "$room/out" | grep -oE '^.[A-Z]+ [0-9]+ [0-9]+' | paste -sd' ')"
expect "the hunk's name" "rank 2 lane compute" "$(grep -m 1 '^@@' "$room/out" | sed 's/.*@@ //')"
GIT_EXTERNAL_DIFF="$PIANOLA diff --git" git diff >"$room/out" 2>&1
expect "git's external diff" 0 $?
expect "git's external diff names the file" "diff --pianola a/1f1b/streams.txt b/1f1b/streams.txt" "$(head -n 1 "$room/out")"
expect "git's external diff prints what changed" "~ rank 2 compute 2F5" "$(grep -m 1 '^~' "$room/out" | tr -s ' ' | cut -d' ' -f1-5)"
for option in --json --markdown "--fail-on makespan:+0" "--fit x" "--svg x" "--html x"; do
    expect "--git $option" "pianola: error: --git prints text for git: it cannot be combined with --json, --markdown, --fail-on, --fit, --svg, --html" \
        "$("$PIANOLA" diff --git a "$root/$A/streams.txt" b c 1f1b/streams.txt d e $option 2>&1 >/dev/null)"
done
expect "--git -D" "pianola: error: --git: -D is for scripts, which git compares as text" \
    "$("$PIANOLA" diff --git a "$root/$A/streams.txt" b c 1f1b/streams.txt d e -D workers=2 2>&1)"
git checkout -q 1f1b && sed -i '5s/^/<<<<<<< /' 1f1b/streams.txt # a conflict
GIT_EXTERNAL_DIFF="$PIANOLA diff --git" git diff >"$room/out" 2>&1
expect "git's external diff of an unreadable file: as text" "0 -F 0 1 +<<<<<<< F 0 1" \
    "$? $(grep -oE '^[-+](<+ )?F 0 [0-9]' "$room/out" | paste -sd' ')"
git checkout -q 1f1b && echo note >>1f1b/report.json && rm 1f1b/timeline.tsv
GIT_EXTERNAL_DIFF="$PIANOLA diff --git" git diff >"$room/out" 2>&1
expect "a changed file that is no program, and a deleted one: exit code" 0 $?
expect "a changed file that is no program" "+note" "$(grep '^+note' "$room/out")"
expect "a deleted file" "+++ b/1f1b/timeline.tsv" "$(grep '^+++ .*tsv' "$room/out")"
# ---- updates that are jobs ----

cd "$root" || exit 2
P=schedules/pipedream.lua
"$PIANOLA" diff $P $P -D batches=2400 >"$room/out"
expect "PipeDream and itself" "0 the same" "$? $(head -n 1 "$room/out")"
"$PIANOLA" diff --all $P schedules/pipedream_naive.lua -D batches=2400 >"$room/out"
expect "PipeDream with and without weight stashing" "1 B takes as long as A (45 units): 30 copies were dropped, and 33 jobs read another version of the weights, and B needs 20 % less memory" \
    "$? $(head -n 1 "$room/out")"
expect "a job that reads another version" "v rank 0 compute  0B5  reads v5 instead of v2" "$(grep 0B5 "$room/out")"
expect "copies that are no longer kept are named by their versions" \
    "- rank 0 compute  COPY 0#8" "$(grep 'COPY 0#8' "$room/out")"
"$PIANOLA" diff $P schedules/pipedream_naive.lua -D batches=2400 --json >"$room/json"
expect "JSON of versions" '33 {"op": "0B1", "rank": 0, "lane": "compute", "a": 0, "b": 1}' "$(python3 -c 'import json, sys
d = json.load(open(sys.argv[1]))
print(len(d["reread"]), json.dumps(d["reread"][0]))' "$room/json")"
# The length of a step counts, even if the programs write out the same part of it.
for n in 1200 2400; do "$PIANOLA" show $P -D batches=$n --format streams >"$room/$n"; done
"$PIANOLA" diff "$room/1200" "$room/2400" >"$room/out"
expect "steps of different lengths" "1 they differ|period 4 times 298 in A, 4 times 598 in B" "$? $(sed -n '1p;6p' "$room/out" | paste -sd'|')"
expect "how much of each step is written out" "B writes out 12 of a step's 2400 microbatches; its times and counts are of these" \
    "$(sed -n 5p "$room/out")"
expect "PipeDream and 2BW" "updates 1 1 1 1 in A, 4 4 4 4 in B" \
    "$("$PIANOLA" diff $P schedules/pipedream_2bw.lua -D batches=2400 | grep '^updates')"
# One version changed by hand: a job declares another version than it reads.
sed 's/^B 0 5 v2 /B 0 5 v4 /' "$room/2400" >"$room/v4"
expect "a version changed by hand" "v rank 0 compute  0B5  reads v4 instead of v2" "$("$PIANOLA" diff --all "$room/2400" "$room/v4" | grep '^v')"
# A timeline does not number copies and gradients, so they match in order.
"$PIANOLA" compile $P -D batches=2400 -o "$room/p" 2>/dev/null
"$PIANOLA" diff "$room/p/streams.txt" "$room/p/timeline.tsv" >"$room/out"
expect "a program and its timeline" "the same" "$(grep -o '^the same' "$room/out")"
finish
