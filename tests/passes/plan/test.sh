#!/usr/bin/env bash
# Checks which variations the searches between passes tried and which one ships, as -dt prints them.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
link="--cluster schedules/clusters/latency.lua"
tried() { "$PIANOLA" show "$@" -dt --format streams 2>&1 >/dev/null; }

# A prefetch that is faster than the plan that keeps the most weights.
fast="schedules/weipipe.lua $link -D bandwidth=2"
expect "prefetch" "prefetch: one per slot: takes 27
prefetch: each one job ahead: takes 26; ships
prefetch: each two jobs ahead: needs more slots than there are
spare: reuse bytes once they are free, by the predicted times: fits; ships" "$(tried $fast)"
expect "the variation marked as shipped is the compiled one" 26 "$(figure makespan $fast)"

# Too little memory for all slots, for a plan without waits for bytes, and for the longest prefetch.
tight="schedules/weipipe.lua $link -D bandwidth=0.5 --memory 14"
expect "all searches" "fit: all slots: does not fit
fit: slots 2 2 2 1: fits
fit: as many as fit: fits; ships
prefetch: as many as fit: takes 42; ships
prefetch: one per slot: takes 48
prefetch: each one job ahead: needs more slots than there are
prefetch: each two jobs ahead: does not fit
spare: reuse bytes once they are free, by the predicted times: takes 42
spare: reuse bytes as soon as the schedule permits: takes 42; ships" "$(tried $tight)"
expect "the shipped variation fits" 42 "$(figure makespan $tight)"

# offload = "auto": limits that need no offloading, and limits that need some.
auto() { tried tests/passes/offload/auto.lua $link -D workers=8 -D batches=16 -D memory="$1" | grep offload; }
expect "room for all" "offload: 0 stashes away: fits
offload: 0 stashes away: fits; ships" "$(auto 12)"
expect "two bytes less" "offload: 9 stashes away: fits
offload: 9 stashes away: fits; ships" "$(auto 10)"
expect "the number of stashes that leave" 2,4,3,0,0,0,0,0 "$(ranks bytes_offloaded tests/passes/offload/auto.lua $link -D workers=8 -D batches=16 -D memory=10)"

expect "a period" "period: 12 microbatches; 4 of them repeat: fits; ships" "$(tried schedules/pipedream.lua | head -n 1)"
expect "nothing but bytes to choose" 1 "$(tried schedules/1f1b.lua | wc -l)"

# -d prints the same programs with t as without, and they read back.
"$PIANOLA" check $tight -dlmw >"$room/plain" 2>/dev/null
"$PIANOLA" check $tight -dtlmw >"$room/tried" 2>"$room/record"
expect "stdout" same "$(cmp "$room/plain" "$room/tried" && echo same)"
expect "stderr has the record" 9 "$(grep -c "^[a-z]*: " "$room/record")"
"$PIANOLA" compile $tight -dtw -o "$room/out" >"$room/streams.txt" 2>/dev/null
expect "it reads back" 0 "$("$PIANOLA" verify "$room/streams.txt" >/dev/null 2>&1; echo $?)"

expect "the searches are printed among the passes" "period offload fit prefetch spare" \
    "$("$PIANOLA" help passes | awk '$2 == "search:" { print $1 }' | paste -sd' ')"
expect "and before the plan that they choose" "prefetch lower spare mem" \
    "$("$PIANOLA" help passes | awk '$1 ~ /^(prefetch|lower|spare|mem)$/ { print $1 }' | paste -sd' ')"
finish
