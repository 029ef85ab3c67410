#!/usr/bin/env bash
# Mixtures of experts: how many tokens are dropped, the bytes that they send, and checkpoints that resume under another
# schedule or team. The matrix (tests/training/matrix, feature experts) has their training, tests/unit/test_moe_host.c
# the formulas.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
. tests/support/ranks.sh
data=(--data /usr/share/common-licenses/GPL-3)
small=(-D layers=2 -D width=32 -D context=16 -D rows=2)
moe=(--model schedules/models/moe.lua "${small[@]}" "${data[@]}")
export OPENBLAS_NUM_THREADS=1

run() { timeout 120 "$PIANOLA" run "$@" --json 2>"$room/said"; }

# ---- what is dropped ----

got=$(run schedules/1f1b.lua "${moe[@]}" --steps 5)
expect "1f1b: the number of choices" $((5 * 8 * 32 * 2 * 2)) "$(field routed_pairs <<<"$got")"
dropped=$(field dropped_pairs <<<"$got")
expect "1f1b: some are dropped ($dropped)" yes "$( ((dropped > 0 && dropped < 5120)) && echo yes)"
for set in --recompute "-D tensor=2"; do
    # shellcheck disable=SC2086
    expect "1f1b $set: as many choices, and as many dropped" \
        "5120 $dropped" "$(run schedules/1f1b.lua "${moe[@]}" $set --steps 5 |
        sed -nE 's/^  "(routed|dropped)_pairs": (.*),/\2/p' | paste -sd' ')"
done
expect "room for all: none is dropped" 0 "$(run schedules/1f1b.lua "${moe[@]}" -D capacity=2 --steps 2 | field dropped_pairs)"
expect "the report's line about dropped pairs" "dropped   $dropped of 5120 (token, expert) pairs, $(awk "BEGIN { printf \"%.3g\", $dropped / 51.2 }")%" \
    "$(timeout 120 "$PIANOLA" run schedules/1f1b.lua "${moe[@]}" --steps 5 2>/dev/null | grep ^dropped)"
# With the load-balancing loss, fewer tokens are dropped in the end.
expect "balanced loads" yes "$(for balance in 0 0.1; do
    run schedules/serial.lua "${moe[@]}" -D balance=$balance --steps 60 | field dropped_pairs
done | paste -sd' ' | awk '{ print $2 < 0.9 * $1 ? "yes" : "no: " $0 }')"

# ---- teams that divide the experts ----

parallel=(-D rows=4 -D parallel=experts)
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

# ---- checkpoints ----

two=(-D workers=2 -D stages=2 -D batches=4)
got=$(run schedules/1f1b.lua "${two[@]}" "${moe[@]}" --steps 4)
compiled pipeline 1f1b "${two[@]}" "${moe[@]:0:10}"
compiled replicas ddp -D workers=2 -D batches=4 "${moe[@]:0:10}"
tcp pipeline 2 --steps 2 "${data[@]}" --checkpoint "$saved" --deadline 60
ended 90
tcp replicas 2 --steps 4 "${data[@]}" --checkpoint "$saved" --resume --json --deadline 60
ended 90
expect "a checkpoint resumes under another schedule" yes "$(field loss_last <"$room/out0" |
    awk -v a="$(field loss_last <<<"$got")" '{ d = a - $1; print (a > 0 && d * d < 1e-10 * a * a) ? "yes" : "no" }')"

four=(-D stages=2 -D batches=4)
wanted=$(run schedules/serial.lua "${four[@]}" -D tensor=4 "${moe[@]}" "${parallel[@]}" --steps 4)
compiled four serial "${four[@]}" -D tensor=4 "${moe[@]:0:10}" "${parallel[@]}"
compiled two serial "${four[@]}" -D tensor=2 "${moe[@]:0:10}" "${parallel[@]}"
rm -rf "$saved"
tcp two 2 --steps 2 "${data[@]}" --checkpoint "$saved" --deadline 60
ended 90
tcp four 4 --steps 4 "${data[@]}" --checkpoint "$saved" --resume --json --deadline 60
ended 90
expect "a team of 4 resumes a team of 2" yes "$(field loss_last <"$room/out0" |
    awk -v a="$(field loss_last <<<"$wanted")" '{ d = a - $1; print (a > 0 && d * d < 1e-10 * a * a) ? "yes" : "no" }')$(said 'error:')"
finish
