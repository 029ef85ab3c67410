#!/usr/bin/env bash
# Checks bounds through the real command: the closed forms of the papers, and memory-time.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT

# The papers' bubbles with F = I = W = 1 and B = 2, as a fraction of the makespan, for sizes at which the formulas hold.
# No script may report less. GPipe (Huang 2019, 2.1) and 1F1B (Narayanan 2021): (P-1) of M + P-1. With V chunks
# (Narayanan 2021, 2.2; breadth-first: Lamy-Poirier 2023): (P-1) of V M + P-1. ZB-H1 (Qi 2023, table 2): (P-1)(F+I-W)
# idle. ZB-H2 and ZB-V idle that long before their first job; the paper does not count it.
expect "closed forms" "$(cat tests/papers/closed_forms/closed.expected)" "$(python3 tests/papers/closed_forms/closed.py "$PIANOLA" 2>&1)"
closed() { figure closed_bubble "$@"; }
expect "closed forms are for unit costs only" "0.2727272727272727,,," \
    "$(closed schedules/1f1b.lua),$(closed schedules/1f1b.lua --model schedules/models/gpt.lua),$(
        closed schedules/1f1b.lua --cluster schedules/clusters/latency.lua),$(closed schedules/1f1b.lua --recompute)"
bubble() { "$PIANOLA" show "$@" | grep ^bubble; }
expect "the closed form agrees with the simulated bubble" \
    "bubble       27.3 %, as the closed form says" "$(bubble schedules/1f1b.lua)"
sed 's/p.workers - s) end/1) end/' schedules/1f1b.lua >"$room/late.lua"
expect "the closed form differs from the simulated bubble" \
    "bubble       75.0 %; the closed form says 27.3 %" "$(bubble "$room/late.lua")"
expect "no closed form is known" "bubble       18.6 %" "$(bubble schedules/v_min.lua)"
expect "compare has a column for closed forms" "27.3 % 27.3 %|18.6 %" "$("$PIANOLA" compare schedules/{1f1b,v_min}.lua |
    sed -nE '4,5s/^[^ ]+ +[^ ]+ +[^ ]+ +([0-9.]+ %) (.{8}).*/\1\2/p' | sed -E 's/ +/ /g;s/ $//' | paste -sd'|')"
expect "but not if none is known" 0 "$("$PIANOLA" compare schedules/v_min.lua | grep -c closed)"

# The regimes of Rahimi 2025, and the cases in which they cannot hold.
expect "regimes" "W = eps S B: 56
G = B / 2: 28 and of one rank 10
1f1b 4 at least B S^2: True half: True
gpipe 4 at least B S^2: True half: True
v_min 4 at least B S^2: False half: True
v_min 8 at least B S^2: False half: True
zbv 4 at least B S^2: True half: True" "$(python3 tests/papers/closed_forms/regimes.py "$PIANOLA" 2>&1)"

# Memory-time that activations occupy, from the timeline alone (judge.py), and its lower bound in chains of unit costs:
# the activation of (s,b) lives through the forwards and backwards of stages s .. S-1.
for schedule in gpipe 1f1b zb_h1 zb_h2 zbv v_half v_min interleaved breadth_first lpp hybrid chimera dualpipev hanayo ddp naive apart cuckoo overflow; do
    for cluster in "" "--cluster schedules/clusters/latency.lua -D latency=0.5"; do
        A="schedules/$schedule.lua $cluster"
        "$PIANOLA" show $A --format tsv >"$room/tsv"
        expect "$schedule $cluster: memory-time" "$(python3 tests/papers/closed_forms/judge.py "$room/tsv" "$(figure makespan $A)" $cluster)" \
            "$(figure memory_held $A) $(figure memory_needed $A)"
    done
done
# Fraction of the allowed memory: the caps if there are any, else the peaks.
expect "allowed memory from caps" $((4 * 4 * 27)) "$(figure memory_room schedules/zb_h1.lua)"
expect "allowed memory from peaks" $((33 * (4 + 3 + 2 + 1))) "$(figure memory_room schedules/1f1b.lua)"
expect "the parts of memory-time" "memory-time  of peaks x makespan, 72.7 % is needed, 6.1 % held while waiting, 21.2 % empty" \
    "$("$PIANOLA" show schedules/1f1b.lua | grep ^memory-time)"
# Memory-time stays within the allowed memory and above the lower bound, for any schedule, model and links.
for schedule in schedules/*.lua; do
    expect "$schedule: needed, held, room" ordered "$("$PIANOLA" show "$schedule" --json \
        --cluster schedules/clusters/latency.lua -D latency=0.3 -D bandwidth=7 | awk -F'[:,]' '
        /"memory_(room|held|needed)"/ { x[$1] = $2 } END { split("", a)
            r = x["  \"memory_room\""]; h = x["  \"memory_held\""]; n = x["  \"memory_needed\""]
            print (n > 0 && n <= h * (1 + 1e-9) && h <= r * (1 + 1e-9)) ? "ordered" : n " " h " " r }')"
done
finish
