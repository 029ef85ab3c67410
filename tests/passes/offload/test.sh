#!/usr/bin/env bash
# Checks stashes and optimizer state in host memory: bytes, times, and how many "auto" moves there.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
link="--cluster schedules/clusters/latency.lua"
integers="--model schedules/models/integers.lua -D layers=4 -D width=64"
adamw="--model schedules/models/gpt.lua"

# Every second stash leaves. If copies are hidden, the step is no longer; a stash has one byte. Rank 2 has 3 units
# between the end of a forward and its backward, in which the stash leaves and returns. Rank 3 keeps its stashes.
expect "1f1b" 33 "$(figure makespan schedules/1f1b.lua)"
expect "half of the stashes leave, copies are free" 33 "$(figure makespan schedules/1f1b_offload.lua $link)"
expect "half of the stashes leave, one unit for each copy" \
    33 "$(figure makespan schedules/1f1b_offload.lua $link -D host=1)"
expect "1.5 units each" 33 "$(figure makespan schedules/1f1b_offload.lua $link -D host=0.6666666666666666)"
expect "2 units each: copies are not hidden" yes "$(figure makespan schedules/1f1b_offload.lua $link -D host=0.5 | awk '{ print ($1 > 33 ? "yes" : $1) }')"
exposed() { json "$@" | sed -nE 's/.*"exposed".*"copies": ([^ ,}]*).*/\1/p;/error:/p' | paste -sd,; }
expect "no rank waits for hidden copies" 0,0,0,0 "$(exposed schedules/1f1b_offload.lua $link -D host=1)"
expect "rank 2 waits for copies that are not hidden" yes "$(exposed schedules/1f1b_offload.lua $link -D host=0.5 | awk -F, '{ print ($3 > 0 ? "yes" : $0) }')"

# Bytes: 4 of rank 0's 8 stashes leave, each of a linear and a relu layer on 2 rows of 64 floats; every one returns.
expect "bytes copied to host memory" 4,4,4,0 "$(ranks bytes_offloaded schedules/1f1b_offload.lua)"
expect "bytes copied back" 4,4,4,0 "$(ranks bytes_reloaded schedules/1f1b_offload.lua)"
kept() { "$PIANOLA" compile schedules/1f1b_offload.lua $integers -dm -o "$room/out" 2>/dev/null | sed -nE 's/^hstash\(0,0\) [0-9]* ([0-9]*)$/\1/p'; }
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
stash=$(kept)
expect "a model's bytes" "$((4 * stash))" "$(ranks bytes_offloaded schedules/1f1b_offload.lua $integers | cut -d, -f1)"
# At most ceil((P - r) / 2) of a rank's stashes are in host memory at a time.
expect "host memory" "2,2,1,0" "$(ranks host_bytes schedules/1f1b_offload.lua)"
peak() { ranks peak_bytes "$@" | cut -d, -f1; }
expect "the device holds less" yes "$([ "$(peak schedules/1f1b_offload.lua $integers --memory least)" -lt "$(peak schedules/1f1b.lua $integers --memory least)" ] && echo yes)"
expect "with recompute the input leaves instead of the stash" 4,4,4,0 "$(ranks bytes_offloaded schedules/1f1b_offload.lua --recompute)"

# Only as many stashes leave as the limit requires. Rank r holds 8 - r stashes, weights, gradient, and messages in
# flight.
auto() { ranks bytes_offloaded tests/passes/offload/auto.lua $link -D workers=8 -D batches=16 -D memory="$1"; }
expect "1f1b needs" 11,12,11,10,9,8,7,5 "$(ranks peak_bytes schedules/1f1b.lua -D workers=8 -D batches=16 --memory least)"
expect "auto, with room for all stashes" 0,0,0,0,0,0,0,0 "$(auto 12)"
expect "a byte less" 0,2,0,0,0,0,0,0 "$(auto 11)"
expect "two bytes less" 2,4,3,0,0,0,0,0 "$(auto 10)"
expect "the least memory possible" 10,15,15,15,15,15,15,0 "$(auto 6)"
expect "less than the least" "pianola: error: tests/passes/offload/auto.lua: rank 1 needs 6 bytes, 1 more" "$(auto 5 | cut -c1-75)"
expect "without a limit none leaves" 0,0,0,0 "$(ranks bytes_offloaded tests/passes/offload/auto.lua)"

# Optimizer state: at its peak the device holds none of AdamW's moments; all of them are in host memory.
state() { ranks at_peak "$@" >/dev/null; json "$@" | sed -nE 's/.*"optimizer": ([0-9]*),.*/\1/p' | paste -sd,; }
at_home=$(state tests/passes/offload/auto.lua $adamw)
expect "state at home" yes "$(awk -F, '{ print ($1 > 0 ? "yes" : $0) }' <<<"$at_home")"
pages() { tr , '\n' | awk '{ print int(($1 + 4095) / 4096) }' | paste -sd,; }
expect "state in host memory, on whole pages" "$(pages <<<"$at_home")" \
    "$(ranks host_bytes tests/passes/offload/auto.lua $adamw -D state=true | pages)"
expect "state is copied once each way" \
    "$at_home" "$(ranks bytes_offloaded tests/passes/offload/auto.lua $adamw -D state=true)"

# Training gives the same bits whatever is offloaded.
run() { "$PIANOLA" run "$@" --steps 5 2>&1 | sed -nE 's/^weights +([0-9a-f]*) .*/\1/p;/error:/p'; }
one=$(run schedules/serial.lua $integers -D stages=4)
for with in "" "-D every=1" "--recompute" "--memory least" "--lanes rank"; do
    expect "trains like one rank: $with" "$one" "$(run schedules/1f1b_offload.lua $integers $with)"
done
gpt=$(run tests/passes/offload/auto.lua $adamw)
expect "AdamW's state in host memory: the same weights" \
    "$gpt" "$(run tests/passes/offload/auto.lua $adamw -D state=true)"

# If updates are jobs, each repetition of a period must offload the same, or else the whole step is written out.
cat >"$room/auto.lua" <<'END'
local p = params { batches = 400 }
return schedule {
  workers = 4, stages = 4, batches = p.batches, w = function(s, b, d) return s, s end,
  n = backward_first, cap = function(r) return 4 - r end, update = "each", offload = "auto",
}
END
for memory in 8500000 8000000 7000000 6000000; do
    expect "updates as jobs, in $memory bytes" proved "$("$PIANOLA" check "$room/auto.lua" --model schedules/models/gpt.lua \
        --cluster schedules/clusters/latency.lua -D flops=57e9 -D memory=$memory -D host=1e9 2>&1 | grep -o proved)"
done
finish
