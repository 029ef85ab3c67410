#!/usr/bin/env bash
# Checks the scripts of `pianola optimal -o`: an n or a pattern, which also fits other numbers of microbatches, or a
# sequence.
# shellcheck disable=SC2086 # options are several words
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
script=$room/best.lua

# best ARGS...: prints the kind of rule found. makespan BATCHES: prints the makespan of the written script.
best() { "$PIANOLA" optimal "$@" --json -o "$script" 2>&1 | sed -nE 's/.*"rule": "?([a-z]+).*/\1/p;/error:/p'; }
makespan() { figure makespan "$script" -D batches="$1"; }
caps="tests/search/optimal/caps.lua"

expect "1F1B is an n" n "$(best $caps -D caps=4)"
expect "1F1B's n is backward_first" 1 "$(grep -c '  n = backward_first,' "$script")"
expect "1F1B with 8 and with 20 microbatches" "33 69" "$(makespan 8) $(makespan 20)"
expect "ZB-H1 is an n" n "$(best $caps -D split=true -D caps=4)"
expect "1F1B's order, with weight gradients in its gaps" 1 "$(grep -c 'n = .*one_forward_one_backward(b, d, 4 - s)' "$script")"
expect "ZB-H1 with 8 and with 20 microbatches" "27 63" "$(makespan 8) $(makespan 20)"
expect "V-Min's memory gives a pattern" pattern "$(best $caps -D chunks=2 -D v=true -D split=true -D caps=4)"
expect "V-Min with 8 and with 20 microbatches" "59 131" "$(makespan 8) $(makespan 20)"
expect "its peak stays the same on each rank" "4,4,4,4" "$(ranks peak_activations "$script" -D batches=40)"
expect "it is proved for 40" 1 "$("$PIANOLA" check "$script" -D batches=40 | grep -c proved)"
expect "fewer microbatches than the pattern needs" 1 "$("$PIANOLA" check "$script" -D batches=1 2>&1 | grep -c 'error: batches = 1 must be at least')"

# The script is written even if its own order deadlocks.
expect "a V in little memory" pattern "$(best $caps -D chunks=2 -D v=true -D caps=6)"
expect "the V with 8 and with 16 microbatches" "63 111" "$(makespan 8) $(makespan 16)"
expect "the script's comment says which numbers are optimal" \
    1 "$(grep -c '^-- 16 microbatches: 111 units, optimal' "$script")"

# period ARGS...: prints the time of one more microbatch, the bound, whether they are equal, and the proof
period() { "$PIANOLA" optimal $caps --objective period "$@" --json 2>&1 | sed -nE 's/.*"period": ([^,]*), "lower_bound": ([^,]*), "optimal": ([a-z]*), "proof": "([a-z]*).*/\1 \2 \3 \4/p;/error:/p'; }
expect "a cap of three: memory bounds the period" "4 4 true memory" "$(period -D caps=3)"
expect "V-Half's memory: a rank's work bounds the period" "6 6 true work" "$(period -D caps=6 -D split=true -D chunks=2 -D v=true -o "$script")"
expect "the written script has that period" 6 "$((($(makespan 80) - $(makespan 40)) / 40))"

# span ARGS...: prints the least largest span, the script's own, and whether it is optimal
span() { "$PIANOLA" optimal $caps --objective span "$@" --json 2>&1 | sed -nE 's/.*"span": ([0-9.]+), "own": ([^,]*),.*"optimal": ([a-z]*).*/\1 \2 \3/p;/error:/p'; }
expect "ZB-H1's memory: its bubble" "27 29 false" "$(span -D split=true -D caps=4 -o "$script")"
expect "the certificate: its claim, and the ranks that have begun in a state" "limit 27 objective span | since 0:1" \
    "$(sed -nE '/^limit|^objective/p; s/^at 1: .*( \| since)/|\1/; s/^\| \| /| /p' "${script%.lua}.bound" | tr '\n' ' ' | sed 's/ $//')"
expect "the written script's largest span is that" 27 "$(ranks span "$script" | tr , '\n' | sort -n | tail -1)"
expect "ZB-H2's memory: no bubble" "24 24 true" "$(span -D split=true -D caps=7)"

# Memory in bytes: GPipe's jobs without room for all microbatches. 1F1B's order is as fast and needs 6.8 MB.
gpt="--model schedules/models/gpt.lua --cluster schedules/clusters/latency.lua -D flops=1e9"
fits() { "$PIANOLA" check "$script" $gpt -D memory="$1" 2>&1 | grep -c proved; }
tight=$("$PIANOLA" optimal schedules/gpipe.lua $gpt -D memory=6e6 --json -o "$script" 2>&1)
expect "6 MB: the written script fits" "0 1" "$(sed -nE 's/.*"excess_bytes": ([0-9]+).*/\1/p' <<<"$tight") $(fits 6e6)"
expect "the script's own order does not fit" 0 "$("$PIANOLA" check schedules/gpipe.lua $gpt -D memory=6e6 2>&1 | grep -c proved)"
expect "7 MB: 1F1B's makespan" 1.284 "$("$PIANOLA" optimal schedules/gpipe.lua $gpt -D memory=7e6 --json -o "$script" |
    sed -nE 's/.*"makespan": ([0-9.]{5}).*"own".*/\1/p')"
expect "7 MB: it fits" 1 "$(fits 7e6)"
expect "too little memory for any order" \
    1 "$("$PIANOLA" optimal schedules/gpipe.lua $gpt -D memory=1e6 2>&1 | grep -c 'error:')"

cat >"$room/turns.lua" <<'END'
local p = params { batches = 4 }
return schedule { workers = 2, stages = 2, batches = p.batches, w = function(s, b) return s, (s + b) % 2 end }
END
expect "ranks that take turns: a sequence" null "$(best "$room/turns.lua")"
expect "the sequence runs" "$(figure makespan "$room/turns.lua")" "$(figure makespan "$script")"
finish
