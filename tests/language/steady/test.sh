#!/usr/bin/env bash
# The sandbox never consults a clock: under a load that takes most of a processor, a script still gets the same answer,
# byte for byte.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
PIANOLA=$(realpath "$PIANOLA")
work=$(mktemp -d)
busy=()
trap 'kill "${busy[@]}" 2>/dev/null; rm -rf "$work"' EXIT

cat >"$work/near.lua" <<'LUA'
-- Much of what a main chunk may do, by pattern, table and string; then a plain schedule.
local kept = {}
for i = 1, 80000 do
  kept[#kept + 1] = ("stage %d of %s"):format(i, "many"):match("(%d+) of")
  if i % 100 == 0 then table.insert(kept, math.max(1, #kept - 50), i) end
end
return schedule { workers = 2, stages = 2, batches = 2, w = function(s, b, d) return s, s end, n = backward_first }
LUA
hostile=(loop_many_coroutines library_pattern memory_pcall loop_n)

answers() { # to standard output
    for name in "${hostile[@]}"; do "$@" "$PIANOLA" check "tests/language/bad/$name.lua" 2>&1; echo "exit code $?"; done
    "$@" "$PIANOLA" show --json "$work/near.lua" 2>&1
    echo "exit code $?"
}

answers env >"$work/quiet"
for i in 1 2; do # at the same low priority, so that the command gets only a share of the processor
    nice -n 19 bash -c 'while :; do :; done' &
    busy[i]=$!
done
answers timeout 300 nice -n 19 >"$work/busy"
expect "answers: the sandbox's own, and one schedule" "4 1" \
    "$(grep -c 'exit code 2' "$work/quiet") $(grep -c 'exit code 0' "$work/quiet")"
expect "answers beside two busy loops, at nice 19" "$(cat "$work/quiet")" "$(cat "$work/busy")"
finish
