#!/usr/bin/env bash
# No clock decides what a script is told: beside other work, at the lowest priority and with less memory at hand, the same
# script gets the same answer to the byte.
cd "$(dirname "$0")/.." || exit 2
. tests/lib.sh
PIANOLA=$(realpath "$PIANOLA")
work=$(mktemp -d)
busy=()
trap 'kill "${busy[@]}" 2>/dev/null; rm -rf "$work"' EXIT

cat >"$work/near.lua" <<'LUA'
-- Nine tenths of what a main chunk may do, by pattern, table, string and loop; then a plain schedule.
local kept = {}
for i = 1, 1200000 do
  kept[i % 1000] = ("stage %d of %s"):format(i, "many"):match("(%d+) of")
  table.insert(kept, 1 + #kept, i)
end
return schedule { workers = 2, stages = 2, batches = 2, w = function(s, b, d) return s, s end, n = backward_first }
LUA
hostile=(loop_many_coroutines library_pattern library_move memory_pcall recursion_pcall loop_n)

answers() { # to standard output
    for name in "${hostile[@]}"; do "$@" "$PIANOLA" check "tests/bad/$name.lua" 2>&1; echo "exit code $?"; done
    "$@" "$PIANOLA" show --json "$work/near.lua" 2>&1
    echo "exit code $?"
}

answers env >"$work/quiet"
for i in 1 2 3; do
    (while :; do :; done) &
    busy[i]=$!
done
answers nice -n 19 >"$work/busy"
expect "answers: the sandbox's own, and one schedule" "6 1" \
    "$(grep -c 'exit code 2' "$work/quiet") $(grep -c 'exit code 0' "$work/quiet")"
expect "answers beside three busy loops, at nice 19" "$(cat "$work/quiet")" "$(cat "$work/busy")"
finish
