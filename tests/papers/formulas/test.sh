#!/usr/bin/env bash
# Checks the papers' schedules through the real command: figures from papers and from published code, and each published
# formula over a grid of sizes. P ranks, M microbatches, V chunks; F = I = W = 1 and B = 2 unless said otherwise.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT

# figures ARGS...: prints "makespan, idle, span - work, peak, per rank: peaks", each the maximum over ranks except the
# last.
figures() {
    json "$@" | awk -F'[:,] *' '
        /error:/ { print; exit }
        /^  "makespan"/ { makespan = $2 }
        /"busy"/ { busy = $2 }
        /"idle"/ { if ($2 > idle) idle = $2 }
        /"span"/ { if ($2 - busy > late) late = $2 - busy }
        /"peak_activations"/ { if ($2 > most) most = $2; peaks = peaks (peaks == "" ? "" : ",") $2 }
        END { if (makespan != "") print makespan + 0, idle + 0, late + 0, most, peaks }'
}
# known NAME MAKESPAN IDLE PEAKS ARGS...: checks a row of a paper or of published code.
known() {
    local got
    read -ra got <<<"$(figures "${@:5}")"
    expect "$1" "makespan $2 idle $3 peaks $4" "makespan ${got[0]} idle ${got[1]} peaks ${got[4]}"
}
sized() { figures "schedules/$1.lua" -D "workers=$2" -D "batches=$3" "${@:4}"; }
# holds NAME P M MAKESPAN LATE PEAK: checks a formula. LATE is the most by which a rank's span exceeds its work, - for
# any.
holds() {
    local got
    read -ra got <<<"$(sized "$1" "$2" "$3" "${@:7}")"
    [ "$5" = - ] && got[2]=-
    expect "$1, P = $2, M = $3 ${*:7}" "$4 $5 $6" "${got[0]} ${got[2]} ${got[3]}"
}

# ---- rows ----

P4M8="-D workers=4 -D batches=8"
# shellcheck disable=SC2086
{
    known "interleaved 2,4,2" 27 3 5,3 schedules/interleaved.lua -D workers=2 -D batches=4
    known "interleaved 4,8,2" 57 9 11,9,7,5 schedules/interleaved.lua $P4M8
    known "breadth first 4,8,2" 57 9 16,16,16,16 schedules/breadth_first.lua $P4M8
    known "ZB-H1 4,8" 27 3 4,4,4,4 schedules/zb_h1.lua $P4M8
    known "ZB-H2 4,8" 27 3 7,7,7,7 schedules/zb_h2.lua $P4M8
    expect "ZB-H2 4,8: span = work" 24,24,24,24 "$(ranks span schedules/zb_h2.lua $P4M8)"
    known "ZB-V 4,8" 51 3 8,8,8,8 schedules/zbv.lua $P4M8
    expect "ZB-V 4,8: span = work" 48,48,48,48 "$(ranks span schedules/zbv.lua $P4M8)"
    known "V-Half 4,8" 53 5 6,6,6,6 schedules/v_half.lua $P4M8
    known "V-Min 4,8" 59 11 4,4,4,4 schedules/v_min.lua $P4M8
}
two_bp() { known "2BP $1" "${@:2:3}" schedules/2bp.lua -D "scheme=$1" -D workers=4 -D "batches=$5"; }
two_bp naive 9 6 1,1,1,1 1
two_bp gpipe 18 6 4,4,4,4 4
two_bp 1f1b 15 3 4,4,4,4 4 # the paper's 1F1B-1
two_bp 1f1b 27 3 8,8,8,8 8 # and its 1F1B-2

# Other costs of I, as a script may declare them.
input() { sed "s/^return schedule {/&\n  cost = function(s, b, d) return d == 'I' and $2 or 1 end,/" "schedules/$1.lua" >"$room/$1.lua"; }
input zb_h1 2 && known "ZB-H1 4,12, F,I,W = 1,2,1" 54 6 4,4,4,4 "$room/zb_h1.lua" -D workers=4 -D batches=12
# shellcheck disable=SC2086
input zbv 2 && known "ZB-V 4,8, I = 2" 70 6 8,8,8,8 "$room/zbv.lua" $P4M8

# Latency c per hop with senders free at once: the cost, on slow links, of a schedule published for free links.
for row in breadth_first/57/63/73 zb_h1/27/41/57; do
    IFS=/ read -ra want <<<"$row"
    for c in 0 1 2; do
        # shellcheck disable=SC2086
        expect "${want[0]}, latency $c" "${want[c + 1]}" \
            "$(figure makespan "schedules/${want[0]}.lua" $P4M8 --cluster schedules/clusters/latency.lua -D latency=$c)"
    done
done

# Megatron-LM's own example of its interleaved order: 2 ranks, 5 microbatches in groups of 3 and 2, 2 chunks (1 and 2).
order=$("$PIANOLA" show schedules/interleaved.lua -D workers=2 -D batches=5 --format tsv |
    awk -F'\t' '$1 == 0 && ($5 == "F" || $5 == "B") { print ($5 == "B" ? -1 : 1) * (int($6 / 2) + 1) }' | paste -sd' ')
expect "interleaved 2,5,2: the order of rank 0" "1 1 1 2 2 2 -2 1 -2 1 -2 2 -1 2 -1 -1 -2 -2 -1 -1" "$order"

# Rahimi's guideline for LPP: as many ranks in a group as stages, and half as many groups as microbatches. The latency
# is S + 1 in units of F + B, with 2 activations.
for SB in 4,8 4,16 8,8 16,32; do
    IFS=, read -r S B <<<"$SB"
    for scheme in lpp fslpp; do
        read -ra got <<<"$(sized $scheme $((S * B / 2)) "$B" -D "stages=$S" -D "group=$S")"
        expect "$scheme guideline, S = $S, B = $B" "$((3 * (S + 1))) 2" "${got[0]} ${got[3]}"
    done
done

# ---- formulas ----

least() { echo $(($1 < $2 ? $1 : $2)); }
formulas() { # P M
    local P=$1 M=$2
    holds gpipe "$P" "$M" $((3 * (M + P - 1))) - "$M"
    holds 1f1b "$P" "$M" $((3 * (M + P - 1))) - "$(least "$P" "$M")"
    [ "$M" -ge "$P" ] || return
    holds zb_h1 "$P" "$M" $((3 * M + P - 1)) $((P - 1)) "$P" # the last rank to end began first
    holds 2bp "$P" "$M" $((3 * M + P - 1)) - "$M"
    holds 2bp "$P" "$M" $((3 * M + 2 * (P - 1))) - "$M" -D scheme=gpipe
    for V in 2 3; do
        G=$(((M + M / P - 1) / (M / P)))
        holds breadth_first "$P" "$M" $((3 * M * V + 3 * (P - 1))) - $((M * V)) -D chunks=$V
        holds interleaved "$P" "$M" $((3 * M * V + 3 * (P - 1))) - \
            "$(least $(((V - 1) * G + 2 * (P - 1) + 1)) $((M * V)))" -D chunks=$V
    done
    if [ "$M" -ge $((2 * P - 1)) ]; then
        holds zb_h2 "$P" "$M" $((3 * M + P - 1)) 0 $((2 * P - 1))
        holds zbv "$P" "$M" $((6 * M + P - 1)) 0 $((2 * P))
    fi
    [ "$M" -lt $((3 * P - 1)) ] || holds stp "$P" "$M" $((6 * M + P - 1)) - $((P > 1 ? 4 * P - 1 : 4))
}
for PM in 1,1 1,3 2,2 2,3 2,7 3,2 3,5 4,4 4,5 4,11 5,9 7,20 8,8 8,15 8,64 16,40; do
    # shellcheck disable=SC2086
    formulas ${PM/,/ }
done
holds naive 4 8 96 - 1
holds naive 7 5 105 - 1
holds 2bp 5 1 11 - 1 -D scheme=naive # 2 P + 1
for name in gpipe 1f1b zb_h1 zb_h2 2bp zbv stp interleaved breadth_first; do # the largest
    read -ra got <<<"$(sized $name 64 512)"
    case $name in
    gpipe | 1f1b) want=$((3 * (512 + 63))) ;;
    zb*h? | 2bp) want=$((3 * 512 + 63)) ;;
    zbv | stp) want=$((6 * 512 + 63)) ;;
    *) want=$((6 * 512 + 3 * 63)) ;;
    esac
    expect "$name, P = 64, M = 512" "$want" "${got[0]}"
done

# HelixPipe: attention takes no part in the bubble. In a layer, queries take Q, attention A, and projection and MLP R; a
# backward takes twice as much. The embedding takes nothing.
helix() { # P L M FOLDS Q A R ARGS...
    sed "s/^return schedule {/&\n  cost = function(s, b, d)\n    local c = s == 0 and 0 or ({ $5, $6, $7 \/ 4, $7 * 3 \/ 4 })[(s - 1) % 4 + 1]\n\
    return d == 'B' and 2 * c or c\n  end,/" schedules/helixpipe.lua >"$room/helixpipe.lua"
    figure makespan "$room/helixpipe.lua" -D "workers=$1" -D "layers=$2" -D "batches=$3" -D "folds=$4" "${@:8}"
}
for size in 2/2/2 2/4/4 3/3/3 4/4/4 4/8/8 4/4/12 8/8/16; do
    IFS=/ read -r P L M <<<"$size"
    for costs in 1/8/4 1/64/4 4/16/1; do
        IFS=/ read -r Q A R <<<"$costs"
        work=$((3 * M * L * (Q + A + R) / P))
        expect "helixpipe, P = $P, L = $L, M = $M, attention $A" $((work + 3 * (P - 1) * (Q + R))) \
            "$(helix "$P" "$L" "$M" 1 "$Q" "$A" "$R")"
        two=$(($(helix "$P" "$L" $((2 * M)) 2 "$Q" "$A" "$R") - 2 * work)) # two folds of M microbatches each
        expect "helixpipe, P = $P, L = $L, M = $((2 * M)), attention $A, two folds: a bubble of $two, at most twice as long" yes \
            "$([ $two -gt 0 ] && [ $two -le $((6 * (P - 1) * (Q + R))) ] && echo yes)"
    done
    expect "helixpipe, P = $P, L = $L, M = $((2 * M)), two folds: attention adds its own time" $((2 * 3 * M * L * 48 / P)) \
        "$(($(helix "$P" "$L" $((2 * M)) 2 1 64 4) - $(helix "$P" "$L" $((2 * M)) 2 1 16 4)))"
done
# A tensor is in flight for as long as a layer's weights compute. A second fold hides nearly all of it, one fold
# nothing.
hidden() { # FOLDS: prints the time that the latency adds
    echo $(($(helix 4 8 16 "$1" 1 16 4 --cluster schedules/clusters/latency.lua -D latency=5) - $(helix 4 8 16 "$1" 1 16 4)))
}
expect "helixpipe, one fold: each layer of each group waits twice, forwards and backwards" yes \
    "$([ "$(hidden 1)" -ge $((2 * 2 * 5 * (4 * 8 - 1))) ] && echo yes || hidden 1)"
expect "helixpipe, two folds hide nine tenths of that" yes "$([ $(($(hidden 2) * 10)) -le "$(hidden 1)" ] && echo yes || hidden 2)"

# Controllable memory: at most half and two thirds of 1F1B's bubble, 6 (P - 1), with (P + 2) // 2 and (P + 4) // 3
# microbatches of two activations each.
for PM in 1,4 2,2 2,8 3,3 3,9 4,9 5,10 6,12 7,7 8,32 9,18 10,20 12,12 13,26 16,32 21,42 32,64 64,512; do
    IFS=, read -r P M <<<"$PM"
    for name in v_half v_min; do
        read -ra got <<<"$(sized $name "$P" "$M")"
        [ $name = v_half ] && bubble=$((3 * (P - 1))) peak=$((2 * ((P + 2) / 2)))
        [ $name = v_min ] && bubble=$((4 * (P - 1))) peak=$((2 * ((P + 4) / 3)))
        expect "$name, P = $P, M = $M: bubble ${got[1]} <= $bubble, peak ${got[3]} <= $peak" yes \
            "$([ "${got[1]}" -le $bubble ] && [ "${got[3]}" -le $peak ] && echo yes)"
    done
done

# On 4 ranks, V-Cap is as fast as any order within its cap; `pianola optimal` proves this for 8, 16 and 32 microbatches.
# With a cap of 2 P, the same holds on any number of ranks: the bubble P - 1 is the way to the last rank and back.
while read -r cap bubble; do
    for M in 8 16 32; do
        holds v_cap 4 "$M" $((6 * M + bubble)) - "$cap" -D "cap=$cap"
    done
done <<<$'5 8\n6 5\n7 4\n8 3'
while read -r P M cap bubble; do
    holds v_cap "$P" "$M" $((6 * M + bubble)) - "$cap" -D "cap=$cap"
done <<<$'2 4 4 1\n3 8 4 5\n3 8 5 3\n3 8 6 2\n5 10 10 4\n7 14 14 6\n8 32 14 11\n8 32 15 9\n8 32 16 7\n16 32 32 15\n32 64 64 31'
# It never deadlocks and never exceeds its cap.
for P in 1 2 3 4 5 6 7; do
    for M in 1 2 3 4 5 9; do
        for ((cap = 2; cap <= 2 * P + 1; cap++)); do
            peak=$(sized v_cap $P $M -D cap=$cap | cut -d' ' -f4)
            expect "v_cap, P = $P, M = $M, cap = $cap: peak $peak" yes "$([ "$peak" -le $cap ] && echo yes)"
        done
    done
done

# ---- recompute ----

# GPipe's paper, section 2.3: recompute adds only one forward per microbatch, because a rank recomputes while it waits
# for a gradient. Of all microbatches but the current one, only the input is kept.
for PM in 4,8 3,7 8,32; do
    IFS=, read -r P M <<<"$PM"
    holds gpipe "$P" "$M" $((3 * (M + P - 1) + M)) - "$M" --recompute
    holds 1f1b "$P" "$M" $((3 * (M + P - 1) + M)) - "$P" --recompute
done
gpt="--model schedules/models/gpt.lua"
growth() { # prints the bytes per microbatch of rank 1, which has neither embedding nor head
    local few many
    # shellcheck disable=SC2086
    few=$(ranks peak_bytes schedules/gpipe.lua $gpt -D batches=8 "$@" | cut -d, -f2)
    # shellcheck disable=SC2086
    many=$(ranks peak_bytes schedules/gpipe.lua $gpt -D batches=16 "$@" | cut -d, -f2)
    echo $(((many - few) / 8))
}
# shellcheck disable=SC2086
sent=$(ranks bytes_received schedules/gpipe.lua $gpt | cut -d, -f2) # 8 activations and 8 gradients of its output's size
expect "GPipe with recompute keeps a microbatch's input" $((sent / 16)) "$(growth --recompute)"
expect "GPipe without keeps more than ten times that" yes "$([ "$(growth)" -gt $((10 * sent / 16)) ] && echo yes)"
for schedule in schedules/*.lua; do
    several_updates "$schedule" && continue
    expect "$schedule --recompute: same weights as one rank" '"one_rank_same_weights": true' \
        "$("$PIANOLA" run "$schedule" --recompute --model schedules/models/integers.lua --steps 3 --json --compare 2>&1 |
            grep -o '"one_rank_same_weights": [a-z]*')"
done

# ---- bounds: no schedule beats its own, and some reach it ----

for schedule in schedules/*.lua; do
    gap=$(figure gap "$schedule")
    expect "$schedule: gap $gap" yes "$(awk -v g="$gap" 'BEGIN { print (g != "" && g >= 0 ? "yes" : "no") }')"
done
expect "DDP attains its bound" 0 "$(figure gap schedules/ddp.lua)"
expect "naive attains its bound: one activation at a time" 0 "$(figure gap schedules/naive.lua)"

# ---- lists and tables ----

expect "show --list: a line for each schedule" "$(cd schedules && echo *.lua)" \
    "$("$PIANOLA" show --list | sed -nE 's/^  ([^ ]+\.lua) +[^ ].*/\1/p' | paste -sd' ')"
for schedule in schedules/*.lua; do
    expect "$schedule begins with the line that --list shows" 1 "$(head -n 1 "$schedule" | grep -cE '^-- .{10,110}\.$')"
done
# SlimPipe with fewer slices than ranks: the fewest that the script allows run; one fewer would deadlock.
for P in 2 3 4 5 8 9; do
    for V in 2 4; do
        Q=$((P / 2))
        expect "slimpipe: $P ranks, $Q slices, $V chunks" proved \
            "$("$PIANOLA" check schedules/slimpipe.lua -D workers=$P -D slices=$Q -D chunks=$V -D batches=6 2>&1 | grep -oE 'proved|error.*')"
    done
done
for schedule in seq1f1b terapipe; do
    expect "$schedule: one slice" proved "$("$PIANOLA" check schedules/$schedule.lua -D slices=1 2>&1 | grep -oE 'proved|error.*')"
done
says() { "$PIANOLA" check schedules/slimpipe.lua -D "workers=$1" -D "slices=$2" -D "chunks=$3" 2>&1 | sed -nE '1s/^[^ ]*: error: //p'; }
expect "slimpipe: too few slices" "slices = 3: with several chunks, 8 ranks need at least 4, or they wait for each other forever; 8 keep all of them busy" "$(says 8 3 2)"
expect "slimpipe: with one chunk per rank, any number of slices runs" "" "$(says 8 2 1)"
sed 's/P > 2 \* Q + 1/false/' schedules/slimpipe.lua >"$room/slimpipe.lua"
expect "slimpipe: a number of slices that the script refuses would deadlock" 1 \
    "$("$PIANOLA" check "$room/slimpipe.lua" -D workers=8 -D slices=3 -D chunks=4 -D batches=6 2>&1 | grep -c 'error: .*: deadlock: ')"

# w() with its two ranks swapped: reported if each rank takes weights from several homes, none of which computes for
# another. No schedule here does that. Neither do weights with one home elsewhere, or with a replica on each rank.
swapped() { "$PIANOLA" check "$@" 2>&1 | sed -n "s|^pianola: warning: $1: ||p"; }
for schedule in schedules/*.lua; do
    expect "$schedule: w() gets no warning" "" "$(swapped "$schedule")"
done
w() { echo "return schedule { workers = 4, stages = 4, batches = 4, n = oldest_batch_first, w = function(s, b, d) return $1 end }" >"$room/w.lua"; }
asks="does w() return its ranks in the wrong order? The weights' home comes first, then the rank that computes; here stage 0 has"
w "b, s" && expect "the home changes, the rank does not" "$asks 4 homes and 1 rank that computes, and 24 of 32 jobs fetch their weights" "$(swapped "$room/w.lua")"
w "s, b" && expect "w() in the right order" "" "$(swapped "$room/w.lua")"
w "b, b % 2" && expect "two ranks compute" "$asks 4 homes and 2 ranks that compute, and 16 of 32 jobs fetch their weights" "$(swapped "$room/w.lua")"
w '(b + (d == "B" and 1 or 0)) % 4, b % 2' && expect "homes that serve two ranks" "" "$(swapped "$room/w.lua")"
w "b, b" && expect "a replica on each rank" "" "$(swapped "$room/w.lua")"
w "(s + 1) % 4, s" && expect "one home on another rank" "" "$(swapped "$room/w.lua")"
w "{ 0, 1, 2, 3 }, b" && expect "shards" "" "$(swapped "$room/w.lua")"
w "s == 0 and b or s, s" && expect "one stage with several homes" "" "$(swapped "$room/w.lua")"
finish
