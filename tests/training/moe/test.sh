#!/usr/bin/env bash
# Mixtures of experts: every schedule trains as one rank does, in one process, over TCP and MPI, and on the CUDA
# stand-in, and all of them drop the same tokens. tests/unit/test_moe_host.c has the formulas.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
. tests/support/ranks.sh
built=$PWD/build
data=(--data /usr/share/common-licenses/GPL-3)
small=(-D layers=2 -D width=32 -D context=16 -D rows=2)
moe=(--model schedules/models/moe.lua "${small[@]}" "${data[@]}")
export OPENBLAS_NUM_THREADS=1

run() { timeout 120 "$PIANOLA" run "$@" --json 2>"$room/said"; }
near() { awk -v d="$1" 'BEGIN { print d != "" && d <= 1e-5 ? "yes" : "no" }'; }

# ---- in one process ----

for schedule in 1f1b zb_h1 fsdp dualpipev interleaved; do
    got=$(run schedules/$schedule.lua "${moe[@]}" -D layers=8 --steps 3 --compare)
    far=$(field one_rank_largest_difference <<<"$got")
    expect "$schedule: losses within 1e-5 ($far)" yes "$(near "$far")"
done
got=$(run schedules/1f1b.lua "${moe[@]}" --steps 5 --compare)
expect "1f1b: the bits of one rank" "0 true" \
    "$(field one_rank_largest_difference <<<"$got") $(field one_rank_same_weights <<<"$got")"
expect "1f1b: as many choices as there are" $((5 * 8 * 32 * 2 * 2)) "$(field routed_pairs <<<"$got")"
dropped=$(field dropped_pairs <<<"$got")
expect "1f1b: some are dropped ($dropped)" yes "$( ((dropped > 0 && dropped < 5120)) && echo yes)"
for set in --recompute "-D tensor=2"; do
    # shellcheck disable=SC2086
    expect "1f1b $set: as many" "5120 $dropped" "$(run schedules/1f1b.lua "${moe[@]}" $set --steps 5 |
        sed -nE 's/^  "(routed|dropped)_pairs": (.*),/\2/p' | paste -sd' ')"
done
expect "room for all: none is dropped" 0 "$(run schedules/1f1b.lua "${moe[@]}" -D capacity=2 --steps 2 | field dropped_pairs)"
expect "the text says it" "dropped   $dropped of 5120 (token, expert) pairs, $(awk "BEGIN { printf \"%.3g\", $dropped / 51.2 }")%" \
    "$(timeout 120 "$PIANOLA" run schedules/1f1b.lua "${moe[@]}" --steps 5 2>/dev/null | grep ^dropped)"
# With the load-balancing loss, fewer tokens are dropped in the end.
expect "balanced loads" yes "$(for balance in 0 0.1; do
    run schedules/serial.lua "${moe[@]}" -D balance=$balance --steps 60 | field dropped_pairs
done | paste -sd' ' | awk '{ print $2 < 0.9 * $1 ? "yes" : "no: " $0 }')"

# ---- teams that divide the experts: they drop the same tokens ----

parallel=(-D rows=4 -D parallel=experts)
one=$(run schedules/serial.lua -D stages=2 -D batches=4 "${moe[@]}" "${parallel[@]}" --steps 4)
for team in 2 4; do
    got=$(run schedules/serial.lua -D stages=2 -D batches=4 -D tensor=$team "${moe[@]}" "${parallel[@]}" --steps 4 --compare)
    far=$(field one_rank_largest_difference <<<"$got")
    expect "experts over $team ranks: losses within 1e-5 ($far), and as many dropped" "yes $(field dropped_pairs <<<"$one")" \
        "$(near "$far") $(field dropped_pairs <<<"$got")"
done
for schedule in experts 1f1b fsdp zb_h1; do
    got=$(run schedules/$schedule.lua -D tensor=2 "${moe[@]}" "${parallel[@]}" -D layers=8 --steps 3 --compare)
    far=$(field one_rank_largest_difference <<<"$got")
    expect "$schedule, experts over 2 ranks: losses within 1e-5 ($far)" yes "$(near "$far")"
done
far=$(run schedules/1f1b.lua -D tensor=2 "${moe[@]}" "${parallel[@]}" --steps 3 --recompute --compare | field one_rank_largest_difference)
expect "recomputed: losses within 1e-5 ($far)" yes "$(near "$far")"
# A member sends its tokens to `top` experts each, with a capacity of 1.25 times the mean, there and back, in F and in
# B. Sums of weights do not depend on the number of microbatches.
received() { # TEAM BATCHES
    "$PIANOLA" show schedules/serial.lua -D stages=1 -D batches=$2 -D tensor=$1 "${moe[@]:0:10}" "${parallel[@]}" -D capacity=1.25 \
        --json | sed -nE 's/^ *"bytes_received": ([0-9]+),?$/\1/p' | head -n 1
}
for team in 2 4; do
    expect "bytes of the all-to-alls in a team of $team" $((2 * 4 * (4 * 16 / team) * 2 * 5 / 4 * 32 * 4 * (team - 1) / team)) \
        $(($(received $team 2) - $(received $team 1)))
done

# ---- between processes, and from one schedule to another ----

two=(-D workers=2 -D stages=2 -D batches=4)
got=$(run schedules/1f1b.lua "${two[@]}" "${moe[@]}" --steps 4)
compiled pipeline 1f1b "${two[@]}" "${moe[@]:0:10}"
compiled replicas ddp -D workers=2 -D batches=4 "${moe[@]:0:10}"
for how in tcp mpi; do
    $how pipeline 2 --steps 4 "${data[@]}" --deadline 60
    ended 90
    expect "over $how: the bits of one process, and as many dropped" \
        "$(field weights <<<"$got") dropped   $(field dropped_pairs <<<"$got") of 2048" \
        "$(weights)$(said 'error:') $(grep -oE '^dropped +[0-9]+ of [0-9]+' "$room/out0")"
done
tcp pipeline 2 --steps 2 "${data[@]}" --checkpoint "$saved" --deadline 60
ended 90
tcp replicas 2 --steps 4 "${data[@]}" --checkpoint "$saved" --resume --json --deadline 60
ended 90
expect "a checkpoint goes on under another schedule" yes "$(field loss_last <"$room/out0" |
    awk -v a="$(field loss_last <<<"$got")" '{ d = a - $1; print (a > 0 && d * d < 1e-10 * a * a) ? "yes" : "no" }')"

four=(-D stages=2 -D batches=4)
wanted=$(run schedules/serial.lua "${four[@]}" -D tensor=4 "${moe[@]}" "${parallel[@]}" --steps 4)
compiled four serial "${four[@]}" -D tensor=4 "${moe[@]:0:10}" "${parallel[@]}"
compiled two serial "${four[@]}" -D tensor=2 "${moe[@]:0:10}" "${parallel[@]}"
for how in tcp mpi; do
    $how four 4 --steps 4 "${data[@]}" --deadline 60
    ended 90
    expect "experts over 4 ranks over $how: the bits of one process, and as many dropped" \
        "$(field weights <<<"$wanted") dropped   $(field dropped_pairs <<<"$wanted") of 4096" \
        "$(weights)$(said 'error:') $(grep -oE '^dropped +[0-9]+ of [0-9]+' "$room/out0")"
done
rm -rf "$saved"
tcp two 2 --steps 2 "${data[@]}" --checkpoint "$saved" --deadline 60
ended 90
tcp four 4 --steps 4 "${data[@]}" --checkpoint "$saved" --resume --json --deadline 60
ended 90
expect "a team of 4 goes on where one of 2 was" yes "$(field loss_last <"$room/out0" |
    awk -v a="$(field loss_last <<<"$wanted")" '{ d = a - $1; print (a > 0 && d * d < 1e-10 * a * a) ? "yes" : "no" }')$(said 'error:')"

# ---- on GPUs, with the stand-in ----

[ -f "$built/standin/libpianola-cuda.a" ] || { echo "libpianola-cuda.a is not in build/standin: make standin"; exit 1; }
export PKG_CONFIG_PATH=$built/standin:$PKG_CONFIG_PATH PIANOLA_CUDA=$built/standin/libpianola-cuda.so
suffix=.gpu
gpu=$(run schedules/1f1b.lua "${two[@]}" "${moe[@]}" --steps 4 --device cuda)
expect "on a GPU: the host's loss within 1e-5, and as many dropped" "yes $(field dropped_pairs <<<"$got")" \
    "$(field loss_last <<<"$gpu" | awk -v a="$(field loss_last <<<"$got")" \
        '{ d = a - $1; print (a > 0 && d * d < 1e-10 * a * a) ? "yes" : "no" }') $(field dropped_pairs <<<"$gpu")"
expect "graph and eager replay" "$(field weights <<<"$gpu")" \
    "$(run schedules/1f1b.lua "${two[@]}" "${moe[@]}" --steps 4 --device cuda --no-graph | field weights)"
bf16=$(run schedules/1f1b.lua "${two[@]}" "${moe[@]}" -D precision=bf16 --steps 4 --device cuda)
expect "bf16: loss within 0.05 of the host's" yes "$(field loss_last <<<"$bf16" | awk -v a="$(field loss_last <<<"$got")" \
    '{ d = a - $1; print (a > 0 && d != 0 && d * d < 0.05 * 0.05) ? "yes" : "no" }')"
compiled pipeline 1f1b "${two[@]}" "${moe[@]:0:10}"
timeout 120 mpirun --oversubscribe -n 2 "$room/pipeline/rank.gpu" --flight "$room" --steps 4 "${data[@]}" --messages put \
    >"$room/out0" 2>"$room/err0"
expect "a GPU each: the bits of one process, and as many dropped" \
    "$(field weights <<<"$gpu") dropped   $(field dropped_pairs <<<"$gpu") of 2048" \
    "$(weights)$(said 'error:') $(grep -oE '^dropped +[0-9]+ of [0-9]+' "$room/out0")"
gpu=$(run schedules/serial.lua "${four[@]}" -D tensor=4 "${moe[@]}" "${parallel[@]}" --steps 4 --device cuda)
expect "experts over 4 ranks on a GPU: the host's loss within 1e-5, and as many dropped" "yes $(field dropped_pairs <<<"$wanted")" \
    "$(field loss_last <<<"$gpu" | awk -v a="$(field loss_last <<<"$wanted")" \
        '{ d = a - $1; print (a > 0 && d * d < 1e-10 * a * a) ? "yes" : "no" }') $(field dropped_pairs <<<"$gpu")"
compiled four serial "${four[@]}" -D tensor=4 "${moe[@]:0:10}" "${parallel[@]}"
for flags in "--messages put" "--reduce ordered"; do
    # shellcheck disable=SC2086
    timeout 120 mpirun --oversubscribe -n 4 "$room/four/rank.gpu" --flight "$room" --steps 4 "${data[@]}" $flags \
        >"$room/out0" 2>"$room/err0"
    expect "experts over 4 GPUs, $flags: the bits of one process" "$(field weights <<<"$gpu")" "$(weights)$(said 'error:')"
done
finish
