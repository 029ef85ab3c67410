#!/usr/bin/env bash
# Costs that are 0, huge, or negligible next to others, through the real command: every figure is finite, nothing hangs,
# and values of different units are never added. Random costs: tests/unit/test_sched.c, tests/unit/test_pipeline.c;
# refused ones: tests/language/bad.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
printf '#!/bin/sh\nexec timeout 60 "%s" "$@"\n' "$(realpath "$PIANOLA")" >"$room/pianola" # a hang fails
chmod +x "$room/pianola"
PIANOLA=$room/pianola

# costs NAME EXPRESSION: writes 1F1B on 4 ranks whose jobs (s,b,d) have that cost.
costs() {
    cat >"$room/$1.lua" <<END
local p = params { workers = 4, batches = 8 }
return schedule {
  workers = p.workers, stages = p.workers, batches = p.batches, n = backward_first,
  w = function(s, b, d) return s, s end,
  cap = function(r) return p.workers - r end,
  cost = function(s, b, d) return $2 end,
}
END
}
costs free 0
costs absorbed 'b % 2 == 0 and 1 or 1e-20'
costs last 'b == 7 and 1e9 or 1e-9'
costs free_backward 'd == "F" and 1 or 0'
costs extremes '({ 1e-100, 1e100, 0, 1 })[(s + b) % 4 + 1]'

for name in free absorbed last free_backward extremes; do
    schedule=$room/$name.lua
    expect "$name is proved" 0 "$("$PIANOLA" check "$schedule" >/dev/null 2>&1; echo $?)"
    for format in grid svg html chrome tsv json; do
        "$PIANOLA" show "$schedule" --format $format >"$room/out" 2>&1
        expect "$name as $format" 0 $?
        expect "$name as $format: every figure is finite" 0 "$(sed '/^<script>/,/^<\/script>/d' "$room/out" | grep -cE '[-": =MLHV\t](nan|inf)\b|: null')"
    done
    "$PIANOLA" compile "$schedule" -o "$room/$name" >/dev/null 2>&1
    expect "$name compiles" 0 $?
    expect "$name: the compiled program reads back" \
        "the same" "$("$PIANOLA" diff "$room/$name" "$schedule" | head -n 1)"
    expect "$name compared with 1F1B" 1 "$("$PIANOLA" diff "$schedule" schedules/1f1b.lua --svg "$room/a.svg" >/dev/null 2>&1; echo $?)"
    expect "$name against itself" 0 "$("$PIANOLA" diff "$schedule" "$schedule" --json >/dev/null 2>&1; echo $?)"
done
expect "free jobs: makespan, bubble, throughput, gap" "0 0 0 0" "$(for f in makespan bubble throughput gap; do figure $f "$room/free.lua"; done | xargs)"
expect "free jobs have live activations all the same" 4,3,2,1 "$(ranks peak_activations "$room/free.lua")"
expect "the picture names what it leaves out" 1 "$("$PIANOLA" show "$room/free.lua" | grep -c 'jobs that take no time')"
expect "free backwards" 11 "$(figure makespan "$room/free_backward.lua")" # (M + P - 1) F
expect "free backwards in a table" "0 0.0 % 4" "$("$PIANOLA" compare "$room/free.lua" schedules/1f1b.lua | awk '$1 == "free" { print $3, $4, $5, $8 }')"
expect "a rank's busy time is its jobs' cost, however late they run" 24,24,24,24 "$(ranks busy schedules/1f1b.lua \
    --cluster <(echo 'return cluster { link = function() return 1e17, math.huge end }'))"
expect "a window too narrow to tell its ticks apart" 0 \
    "$("$PIANOLA" show schedules/1f1b.lua --format svg --from 32.999999999999986 --to 33 >/dev/null 2>&1; echo $?)"

# The largest integers differ by one: n compares as Lua does.
cat >"$room/large.lua" <<'END'
local p = params { turn = 1 }
return schedule {
  workers = 1, stages = 1, batches = 3,
  w = function(s, b, d) return 0, 0 end,
  n = function(s, b, d) return d == "F" and math.maxinteger - p.turn * b or math.maxinteger end,
}
END
order() { "$PIANOLA" show "$room/large.lua" --format tsv -D "turn=$1" | awk -F '\t' '$5 == "F" { printf "%s", $7 }'; }
expect "priorities beyond 53 bits" "012 210" "$(order 0) $(order 1)"

# Seconds and FLOP are not added.
gpt="schedules/1f1b.lua --model schedules/models/gpt.lua --cluster schedules/clusters/latency.lua"
expect "a model on links that take seconds" "schedules/clusters/latency.lua:8: error: 'link' returns seconds, but the costs of the model's jobs are in FLOP, and the two cannot be added; add flops, the FLOP per second of a rank: flops = 1e14" \
    "$("$PIANOLA" check $gpt -D latency=1e-5 2>&1 | head -n 1)"
expect "with flops everything is in seconds" s "$(figure unit $gpt -D latency=1e-5 -D flops=1e12)"
expect "with free links everything is in FLOP" FLOP "$(figure unit $gpt)"
expect "every row names its unit" "s FLOP F" "$(for args in "$gpt -D flops=1e12" "$gpt" schedules/1f1b.lua; do
    "$PIANOLA" show $args --format tsv | tail -n +2 | cut -f 10 | sort -u
done | xargs)"
expect "every figure names its unit" "time, ms" "$("$PIANOLA" show $gpt -D flops=1e12 --ascii | grep -o 'time, [a-z]*')"
# Measured costs. A stage without weights has no W, so its B is what was measured as its I, also of a slice.
echo 'return schedule { workers = 2, stages = 2, batches = 2, slices = 2, split_backward = true, w = function(s) return s, s end, n = backward_first }' >"$room/slices.lua"
echo 'return model { input = tokens { vocab = 16, context = 8, rows = 2 }, layers = { embedding { width = 8 }, linear { width = 16 }, cross_entropy {} }, cut = { 3 },
    optimizer = sgd { lr = 0.5 } }' >"$room/bare.lua"
echo "return cluster { stages = 2, cost = function(s, d) return d ~= 'B' and 3 or nil end }" >"$room/took.lua"
expect "slices of a stage without weights" "F 3 B 3" "$("$PIANOLA" show "$room/slices.lua" --model "$room/bare.lua" --cluster "$room/took.lua" --format tsv |
    awk -F'\t' '$2 == "compute" && $6 == 1 { took[$5] = $4 - $3 } END { for (op in took) print op, took[op] }' | sort -r | xargs)"
echo "return cluster { stages = 8, cost = function(s, d) return s == 9 and 7 or 1 end }" >"$room/tables.lua"
expect "a team of two has two tables, each with its own update" "8 1 9 7" "$("$PIANOLA" show schedules/1f1b.lua -D tensor=2 --model schedules/models/gpt.lua -D tied=true \
    --cluster "$room/tables.lua" --format tsv | awk -F'\t' '$5 == "U" && $6 > 7 { printf "%d %d ", $6, $4 - $3 + 0.5 }' | xargs)"
# Units of a script's own costs are not added to FLOP or seconds either.
costs own 1.5
expect "cost() beside a model" "pianola: error: $room/own.lua: cost() says how long jobs take, but the model counts FLOP, and no sum of both means anything; give a cluster with flops, beside which cost() returns seconds, or leave cost() or --model out" \
    "$("$PIANOLA" check "$room/own.lua" --model schedules/models/gpt.lua 2>&1)"
expect "with a cluster, cost() returns seconds" s "$(figure unit "$room/own.lua" --model schedules/models/gpt.lua \
    --cluster schedules/clusters/latency.lua -D flops=1e12)"

# Schedules of unlike numbers of stages: show's units, and compare's.
expect "both units" "57 units; 28.5 where F is 1 for a rank's share of the model, as in \`compare\`" \
    "$("$PIANOLA" show schedules/interleaved.lua | sed -n 's/^makespan *//p')"
expect "compare's unit" 28.5 "$("$PIANOLA" compare schedules/interleaved.lua | awk '$1 == "interleaved" { print $3 }')"
expect "one unit if both agree" "33 units" "$("$PIANOLA" show schedules/1f1b.lua | sed -n 's/^makespan *//p')"
finish
