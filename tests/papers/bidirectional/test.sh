#!/usr/bin/env bash
# Checks published figures through the real command. Covers schedules that send microbatches both ways through the
# ranks, in waves or over replicas, schedules that run F and B on different ranks, and ranks of unequal speed. Costs: F
# = 1, B = 2, I = W = 1.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh

most() { tr , '\n' | sort -n | tail -n 1; }
calc() { awk "BEGIN { print $1 }"; }
# figures ARGS...: prints makespan / idle time per rank / peak live activations per rank
figures() { echo "$(figure makespan "$@") / $(ranks idle "$@") / $(ranks peak_activations "$@")"; }
repeat() { yes "$1" | head -n "$2" | paste -sd,; }

# DualPipe and DualPipeV follow the orders of PyTorch and DeepSeek. A paired F and B run in sequence, or F is hidden.
V="schedules/dualpipev.lua -D workers=4 -D batches=10" D="schedules/dualpipe.lua -D workers=8 -D batches=20"
# shellcheck disable=SC2086
{
    expect "DualPipeV, serial" "66 / 6,6,6,6 / 9,9,9,9" "$(figures $V -D overlap=0)"
    expect "DualPipeV, F&B = 2" "52 / 1,2,3,3 / 9,9,9,9" "$(figures $V -D overlap=1)"
    expect "DualPipe, serial" "66 / 6,6,6,6,6,6,6,6 / 9,9,9,9,9,9,9,9" "$(figures $D -D overlap=0)"
    expect "DualPipe, F&B = 2" "52 / 1,2,3,3,3,3,2,1 / 9,9,9,9,9,9,9,9" "$(figures $D -D overlap=1)"
}
# DeepSeek-V3, table 2: bubble (PP/2 - 1)(F&B + B - 3W), activations PP + 1. Here F&B = 3 - overlap.
dualpipe() { # SCHEDULE PP M OVERLAP: M microbatches in each direction
    local args=("schedules/$1.lua" -D "overlap=$4" -D "workers=$2" -D "batches=$((2 * $3))")
    [ "$1" = dualpipe ] || args=("schedules/$1.lua" -D "overlap=$4" -D "workers=$(($2 / 2))" -D "batches=$3")
    expect "$1 PP=$2 M=$3 overlap=$4: bubble, activations" "$(calc "($2 / 2 - 1) * (3 - $4 + 2 - 3)") $(($2 + 1))" \
        "$(ranks idle "${args[@]}" | most) $(ranks peak_activations "${args[@]}" | tr , '\n' | sort -u)"
}
for schedule in dualpipe dualpipev; do
    for pp in 2 4 6 8 16; do
        for overlap in 0 0.5 1; do
            dualpipe $schedule $pp $pp $overlap
            dualpipe $schedule $pp $((2 * pp + 1)) $overlap
        done
    done
    dualpipe $schedule 64 256 0.25
done

# Chimera with B = 2 F: the bubble ratio is (D - 2) / (3N/2 + D - 2) for D microbatches. Live activations range from
# D/2 + 1 on the outer ranks to D in the middle; each rank stores two stages. Each further unit of D microbatches adds
# D - 2. That is not published: units with F = B = 1 join without a gap, units with B = 2 F do not.
for ((d = 2; d <= 32; d += d < 8 ? 2 : 12)); do
    chimera="schedules/chimera.lua -D workers=$d -D batches"
    expect "Chimera D=$d: bubble" "$(calc "sprintf(\"%.6f\", ($d - 2) / (3 * $d / 2 + $d - 2))")" \
        "$(calc "sprintf(\"%.6f\", $(figure bubble $chimera=$d))")"
    expect "Chimera D=$d: three units" $((9 * d + 4 * (d - 2))) "$(figure makespan $chimera=$((3 * d)))"
    peaks=
    for ((r = 0; r < d; r++)); do peaks+=,$((d / 2 + 1 + (r < d - 1 - r ? r : d - 1 - r))); done
    expect "Chimera D=$d: activations" "${peaks:1}" "$(ranks peak_activations $chimera=$((2 * d)))"
    expect "Chimera D=$d: stages stored" 2 "$(ranks stages_stored $chimera=$d | most)"
done
expect "Chimera 4, 4" "16 / 4,4,4,4 / 3,4,4,3" "$(figures schedules/chimera.lua -D workers=4 -D batches=4)"

# Hanayo: the bubble is 4 (P - 1), in units of a stage's F, for any number of waves. So its share falls as waves grow.
# This is derived from the slots, which have no gap if B = F; we did not have the paper's formula. Weights are stored
# once.
for p in 1 2 4 6 16; do
    for waves in 1 2 4; do
        hanayo="schedules/hanayo.lua -D workers=$p -D waves=$waves -D batches=$p"
        expect "Hanayo P=$p, $waves waves: makespan" $((6 * waves * p + 4 * (p - 1))) "$(figure makespan $hanayo)"
        expect "Hanayo P=$p, $waves waves: stages stored" $((2 * waves)) "$(ranks stages_stored $hanayo | most)"
    done
done
expect "Hanayo 4, 1 wave" "36 / 12,12,12,12 / 5,6,7,8" "$(figures schedules/hanayo.lua)"
for b in 1 3 5 7 11; do
    expect "Hanayo, $b microbatches: proved" 0 "$("$PIANOLA" check schedules/hanayo.lua -D batches=$b >/dev/null; echo $?)"
done

# Rahimi's notebook, S = 64, B = 128. It counts an activation on the rank of its backward. Here a running F counts on
# its own rank, which adds one at Cuckoo's peak: 101 + 1.
B="-D batches=128"
# shellcheck disable=SC2086
{
    G="tests/papers/formulas/rahimi.lua -D scheme=gpipe -D workers=64 -D stages=64 $B"
    C="schedules/cuckoo.lua -D workers=64 $B" O="schedules/overflow.lua -D stages=64 -D extra=30 $B"
    expect "GPipe 64 x 128" "573 128" "$(figure makespan $G) $(ranks peak_activations $G | most)"
    expect "Cuckoo 64 x 128" "739 102" "$(figure makespan $C) $(ranks peak_activations $C | most)"
    expect "Overflow 64 x 128, 30 more" "573 88" "$(figure makespan $O) $(ranks peak_activations $O | most)"
}
# Overflowing stages send their stash, and their part of the gradient returns home.
expect "Overflow: stashes travel" 0,8,8,8,2,2 "$(ranks activations_received schedules/overflow.lua)"
expect "Overflow: weights travel" 0,0,0,0,1,1 "$(ranks weights_received schedules/overflow.lua)"

# Hybrid: each of R replicas runs 1F1B on its share of the microbatches, in 3 (M/R + P - 1).
for r in 1 2 4; do
    hybrid="schedules/hybrid.lua -D workers=$((4 * r)) -D replicas=$r -D batches=16"
    expect "hybrid, $r replicas" "$((3 * (16 / r + 3))) $(repeat 4,3,2,1 $r)" \
        "$(figure makespan $hybrid) $(ranks peak_activations $hybrid)"
done
# Each 1-byte gradient is summed over the replicas in a ring, which moves 2 (n - 1) / n of its bytes besides
# activations.
expect "hybrid: bytes" 5,9,9,5,5,9,9,5 "$(ranks bytes_received schedules/hybrid.lua)"
# Replicated stages with one rank each are 1F1B; with two ranks each they are the hybrid of two replicas.
replicated() { figures schedules/replicated.lua -D "replicas=$1" -D batches=8 "${@:2}"; }
expect "replicated 1,1,1,1" "33 / 9,9,9,9 / 4,3,2,1" "$(replicated 1,1,1,1)"
expect "replicated 2,2" "15 / 3,3,3,3 / 2,2,1,1" "$(replicated 2,2)"
expect "hybrid of the same" "15 / 3,3,3,3 / 2,1,2,1" "$(figures schedules/hybrid.lua -D workers=4 -D batches=8)"
# A first stage that takes twice as long (its ranks run at half speed) holds up a pipeline, unless it has two ranks.
# Then each further pair of microbatches takes 6, the time of the other stages.
slow() { figure makespan schedules/replicated.lua -D "replicas=$1" -D "batches=$2" --cluster schedules/clusters/unequal.lua \
    -D "speed=$3"; }
expect "a slow stage on one rank: 4 more microbatches" 24 $(($(slow 1,1,1 20 0.5) - $(slow 1,1,1 16 0.5)))
expect "on two ranks" 12 $(($(slow 2,1,1 20 0.5,0.5) - $(slow 2,1,1 16 0.5,0.5)))

# Forward and backward apart: S stages with two backward ranks each finish a microbatch per unit of time, so the step
# takes M - 1 + 3 S. Forward ranks keep no activations.
for s in 1 2 3 6; do
    for m in 2 8 31; do
        expect "apart S=$s M=$m" $((m - 1 + 3 * s)) "$(figure makespan schedules/apart.lua -D stages=$s -D batches=$m)"
    done
done
expect "apart" "13 / 5,5,5,5,5,5 / 1,3,3,1,1,1" "$(figures schedules/apart.lua)"
expect "apart: stashes travel" 0,4,4,8,4,4 "$(ranks activations_received schedules/apart.lua)"

# A rank at half the speed equals a stage of twice the cost, for which the makespans of 1F1B and GPipe are known.
for want in 1f1b/0.5/51 1f1b/1,1,1,0.5/57 1f1b/1,1,1,0.6666666666666666/45 gpipe/0.5/57 gpipe/1,1,1,0.5/57 \
    gpipe/1,1,1,0.6666666666666666/45; do
    IFS=/ read -r schedule speed makespan <<<"$want"
    expect "$schedule, speed $speed" "$makespan" "$(figure makespan schedules/$schedule.lua \
        --cluster schedules/clusters/unequal.lua -D speed=$speed)"
done

# No schedule beats its bound. Where two jobs overlap, the bound counts them as overlapped.
for schedule in schedules/*.lua; do
    for args in "-D batches=8" "-D batches=24" "-D batches=24 --cluster schedules/clusters/latency.lua -D latency=0.5" \
        "-D batches=24 --cluster schedules/clusters/unequal.lua -D speed=1,0.5"; do
        # shellcheck disable=SC2086
        expect "$schedule $args: the bound holds" yes \
            "$(awk -v gap="$(figure gap "$schedule" $args)" 'BEGIN { print(gap != "" && gap >= 0 ? "yes" : "no: " gap) }')"
    done
done
finish
