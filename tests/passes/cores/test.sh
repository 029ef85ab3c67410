#!/usr/bin/env bash
# Ranks that share cores (passes/sim_cores.c): times computed by hand, and agreement with the simulation without sharing
# where nothing is shared.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
room=$(mktemp -d) || exit 2
trap 'rm -rf "$room"' EXIT

# Three ranks without messages. Rank s runs a forward of s + 1 units, and then a backward of as many.
cat >"$room/apart.lua" <<'LUA'
return schedule { workers = 3, stages = 3, batches = 1,
  w = function(s) return s, s end, n = function(s, b, d) return b end,
  cost = function(s) return s + 1 end, pred = function(s, b, d) return d == "B" and { { s, b, "F" } } or {} end }
LUA
cat >"$room/chain.lua" <<'LUA'
return schedule { workers = 2, stages = 2, batches = 2,
  w = function(s) return s, s end, n = function(s, b, d) return (d == "F" and 0 or 10) + b end,
  cost = function(s, b, d) return 1 end }
LUA
cat >"$room/cluster.lua" <<'LUA'
local p = params { cores = 1000.0, threads = 1, serial = false, handoff = 0.0, latency = 0.0, bandwidth = math.huge }
return cluster { cores = p.cores, threads = p.threads, serial = p.serial, handoff = p.handoff,
  link = function() return p.latency, p.bandwidth end }
LUA

# jobs ARGS...: prints "F start end" of every job, by rank and start.
jobs() {
    "$PIANOLA" show "$@" --format tsv |
        awk -F'\t' '$5 ~ /^[FB]$/ { printf "%s%s %.6g %.6g", sep, $5, $3, $4; sep = ", " }'
}
on="--cluster $room/cluster.lua"

# On two cores three jobs run at 2/3: F0 ends at 1.5, when each has done 1. B0 and F1 have 1 left: 1.5 more. Now F2 has 1
# left, and B1 begins: 2 jobs, each with a core. F2 ends at 4, B1 at 5, and B2, which began at 4, at 7.
expect "three ranks on two cores" "F 0 1.5, B 1.5 3, F 0 3, B 3 5, F 0 4, B 4 7" "$(jobs "$room/apart.lua" $on -D cores=2.0)"
# On one core everything takes 12: V is the work that each running job has done. F0 ends at V = 1: 3. B0, F1 at V = 2: 6.
# B1, F2: F2 ends at V = 3: 8. B1 at V = 4: 10. B2 alone: 12.
expect "three ranks on one core" "F 0 3, B 3 6, F 0 6, B 6 10, F 0 8, B 8 12" "$(jobs "$room/apart.lua" $on -D cores=1.0)"
# Jobs of two threads on two cores run as jobs of one thread on one core do.
expect "two threads a job" "$(jobs "$room/apart.lua" $on -D cores=1.0)" "$(jobs "$room/apart.lua" $on -D cores=2.0 -D threads=2)"
# A core and a half: 3 jobs at 1/2, 2 at 3/4, 1 at 1. F0 ends at 2, B0 and F1 at 4, F2 at 4 + 1/(3/4), B1 1/(3/4) later.
expect "one and a half cores" "F 0 2, B 2 4, F 0 4, B 4 6.66667, F 0 5.33333, B 5.33333 8.66667" \
    "$(jobs "$room/apart.lua" $on -D cores=1.5)"
# Ranks that are threads take turns. Two of them have cores, and keep them until they have nothing to do; rank 2 comes
# after rank 0.
expect "turns on two cores" "F 0 1, B 1 2, F 0 2, B 2 4, F 2 5, B 5 8" \
    "$(jobs "$room/apart.lua" $on -D cores=2.0 -D serial=true)"
expect "turns on one core" "F 0 1, B 1 2, F 2 4, B 4 6, F 6 9, B 9 12" \
    "$(jobs "$room/apart.lua" $on -D cores=1.0 -D serial=true)"
# A core and a half: two turns, at 3/4 while both run. Rank 0 ends at 2/(3/4), when rank 2 begins. Rank 1 ends at
# 4/(3/4), when rank 2 has 1 of its 3 left, which takes 1.
expect "turns on one and a half cores" "F 0 1.33333, B 1.33333 2.66667, F 0 2.66667, B 2.66667 5.33333, F 2.66667 6.33333, B 6.33333 9.33333" \
    "$(jobs "$room/apart.lua" $on -D cores=1.5 -D serial=true)"
# A rank runs half a unit after it got the core that another one left.
expect "turns and the time between them" "F 0 1, B 1 2, F 2.5 4.5, B 4.5 6.5, F 7 10, B 10 13" \
    "$(jobs "$room/apart.lua" $on -D cores=1.0 -D serial=true -D handoff=0.5)"
# Rank 1's backward waits for rank 2's forward, which rank 2 sends without ending its turn.
cat >"$room/waits.lua" <<'LUA'
return schedule { workers = 3, stages = 3, batches = 1,
  w = function(s) return s, s end, n = function(s, b, d) return b end, cost = function(s) return 1 end,
  pred = function(s, b, d) return d == "F" and {} or s == 1 and { { 1, b, "F" }, { 2, b, "F" } } or { { s, b, "F" } } end }
LUA
expect "a rank that waits lets another run" "F 0 1, B 1 2, F 2 3, B 5 6, F 3 4, B 4 5" \
    "$(jobs "$room/waits.lua" $on -D cores=1.0 -D serial=true)"
expect "the work bound divides the work among the cores" 12 "$(figure bound_work "$room/apart.lua" $on -D cores=1.0)"

# A message of 1 byte at 1 byte a unit. If it runs beside the jobs, rank 0's second forward starts at 1. If rank 0's
# only thread carries it, at 2.
expect "messages concurrent with jobs" "F 0 1, F 1 2" "$(jobs "$room/chain.lua" $on -D bandwidth=1.0 | cut -d, -f1,2)"
expect "messages by the rank's thread" "F 0 1, F 2 3" "$(jobs "$room/chain.lua" $on -D bandwidth=1.0 -D serial=true | cut -d, -f1,2)"

# With a core for each rank, times are the same bit for bit. Slightly fewer cores use the other simulation, and times
# differ only slightly.
for name in 1f1b gpipe zbv dualpipe chimera fsdp 1f1b_fsdp zero2 hsdp tp_1f1b pipedream weipipe 1f1b_offload; do
    for link in "" "-D latency=0.3 -D bandwidth=3.0"; do
        # shellcheck disable=SC2086
        all() { "$PIANOLA" show schedules/$name.lua "$@" $link --format "${format:-tsv}"; }
        ranks=$(json schedules/$name.lua | sed -nE 's/^  "workers": ([0-9]+),/\1/p')
        all $on >"$room/enough"
        all $on -D cores="$ranks.0" >"$room/equal"
        all $on -D cores="$((ranks - 1)).9999999999" >"$room/less"
        expect "$name $link: as many cores as ranks" "$(md5sum <"$room/enough")" "$(md5sum <"$room/equal")"
        expect "$name $link: nearly as many" "" "$(paste "$room/enough" "$room/less" | awk -F'\t' '
            NR > 1 && (($3 - $13) ^ 2 > 1e-12 || ($4 - $14) ^ 2 > 1e-12 || $5 != $15) { print; exit }')"
        period=$(figure period schedules/$name.lua $on $link)
        shared=$(figure period schedules/$name.lua $on $link -D cores="$((ranks - 1)).9999999999")
        expect "$name $link: period" yes "$(awk -v a="$period" -v b="$shared" 'BEGIN { print (a - b) ^ 2 < 1e-12 ? "yes" : a " or " b }')"
    done
done

# The output is the same each time, also with noise of 0.
"$PIANOLA" show schedules/zbv.lua $on -D cores=2.0 --format tsv >"$room/a"
"$PIANOLA" show schedules/zbv.lua $on -D cores=2.0 --format tsv >"$room/b"
expect "deterministic" "" "$(cmp "$room/a" "$room/b")"

# mistakes
for wrong in 'cores = 0' 'cores = "2"' 'threads = 2' 'cores = 2, threads = 0' 'cores = 2, serial = 1' 'cores = 2, handoff = 1' 'serial = true, handoff = -1'; do
    echo "return cluster { $wrong }" >"$room/wrong.lua"
    "$PIANOLA" check schedules/1f1b.lua --cluster "$room/wrong.lua" >"$room/said" 2>&1
    expect "$wrong" "2 $room/wrong.lua:1: error" "$? $(head -1 "$room/said" | grep -o '^[^ ]*wrong.lua:1: error')"
done
"$PIANOLA" show schedules/1f1b.lua $on -D cores=2.0 --launch-order issue >"$room/said" 2>&1
expect "cores with a launch order" 2 $?
finish
