#!/usr/bin/env bash
# Asynchronous training equals the papers' formulas, bit by bit: the real command trains a chain of linear and relu layers
# on integers, and build/formulas (train.c) the same, microbatch by microbatch, from the formulas alone. So do both the
# versions that the program declares and the weights that it ends with. Then schedules drawn at random, which have
# no formula, on the versions they declare.
#
#   CASES=5000 tests/pipedream_training/test.sh    more random schedules; one again: -D seed=N
cd "$(dirname "$0")/../.." || exit 2
. tests/support/lib.sh
here=tests/pipedream_training
formulas=$(dirname "$PIANOLA")/formulas
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT

field() { sed -nE "s/^ *\"?$1\"?:? \"?([^,\"]*)\"?,?$/\1/p" <<<"$2"; }
near() { awk -v a="$1" -v b="$2" 'BEGIN { print a != "" && b != "" && (a - b) ^ 2 <= (1e-5 * b) ^ 2 ? "yes" : a " and " b }'; }

# chain STAGES LAYERS FEATURES ROWS LR STEPS: the model that the following commands train.
chain() {
    model=(--model $here/chain.lua -D "stages=$1" -D "layers=$2" -D "features=$3" -D "rows=$4" -D "lr=$5")
    terms=("stages=$1" "layers=$2" "features=$3" "rows=$4" "lr=$5" "steps=$6")
    steps=$6
}

# trains WHAT RULE SCHEDULE ARGS...: the program declares the rule's versions, and ends with its weights.
trains() {
    local what=$1 rule=$2 run wanted
    shift 2
    "$PIANOLA" show "$@" "${model[@]}" --format streams >"$room/streams" 2>"$room/err" ||
        { expect "$what: compiles" "" "$(cat "$room/err")" && return; }
    wanted=$("$formulas" "${terms[@]}" rule="$rule" streams="$room/streams" 2>&1)
    run=$(timeout 120 "$PIANOLA" run "$@" "${model[@]}" --steps "$steps" --json 2>&1)
    expect "$what: weights" "$(field weights "$wanted")" "$(field weights "$run")"
    expect "$what: loss" yes "$(near "$(field loss_last "$run")" "$(field loss "$wanted")")"
    [ -n "$(field weights "$wanted")" ] || expect "$what: the formula" "" "$wanted"
}

# ---- the reference itself ----

# What trains with one update at the end of a step, as every test of such schedules says.
chain 4 2 8 2 21 3
for schedule in 1f1b gpipe ddp 2bp; do
    trains "$schedule" sync schedules/$schedule.lua -D batches=8 -D workers=4
done
chain 1 2 1 1 8 3
alone=$("$formulas" "${terms[@]}" batches=12 rule=sync)
for rule in stashing vertical naive; do
    expect "$rule with one stage is gradient descent" "$alone" "$("$formulas" "${terms[@]}" batches=12 rule=$rule)"
done
# Every formula gives other weights than every other one, and than itself with an update more or less of delay, where that
# is not the other formula. Every microbatch reaches every column, and each stage has two layers: the first stage's first layer
# has no gradient of its input, so its backward could read any version.
chain 3 2 2 2 17 2
seen=()
for rule in sync stashing vertical naive double; do
    for late in 0 1 2 -1; do
        seen+=("$(field weights "$("$formulas" "${terms[@]}" batches=24 updates=1 rule=$rule late=$late)")")
    done
done
# Delays of all three stages, forward and backward: sync 0, 1, 2, 0; stashing 210, 321, 432, 100; vertical 2, 3, 4, 1;
# naive forward 210, 321, 432, 100; double 1, 2, 3, 0.
expect "formulas differ" 13 "$(printf '%s\n' "${seen[@]}" | sort -u | grep -c .)"

# A program by hand: two stages, weight stashing, seven microbatches of which the period runs five.
cat >"$room/hand" <<'EOF'
pianola 1
program hand workers 2 stages 2 batches 3
updates 1 1
period 1 times 5
rank 0 lane compute
F 0 0 v0 w=weight(0)
F 0 1 v0 w=weight(0)
B 0 0 v0 w=weight(0)
U 0 0 w=weight(0)
F 0 2 v1 w=weight(0)
B 0 1 v0 w=weight(0)#0
U 0 1 w=weight(0)
B 0 2 v1 w=weight(0)#1
U 0 2 w=weight(0)
rank 0 issue
0*4 | 0*3 | 0*2
rank 0 memory 0
rank 1 lane compute
F 1 0 v0 w=weight(1)
B 1 0 v0 w=weight(1)
U 1 0 w=weight(1)
F 1 1 v1 w=weight(1)
B 1 1 v1 w=weight(1)
U 1 1 w=weight(1)
F 1 2 v2 w=weight(1)
B 1 2 v2 w=weight(1)
U 1 2 w=weight(1)
rank 1 issue
0*3 | 0*3 | 0*3
rank 1 memory 0
EOF
chain 2 1 1 1 8 2
told() { "$formulas" "${terms[@]}" "$@" 2>&1; }
expect "a period by hand" "$(told rule=stashing batches=7)" "$(told rule=stashing streams="$room/hand")"
expect "its versions as they are" "$(told rule=stashing batches=7)" "$(told rule=any streams="$room/hand")"
expect "another rule" "formulas: F 0 1 reads version 0, by the formula 1" "$(told rule=sync streams="$room/hand")"
# altered WHAT SED: says so.
altered() {
    sed "$2" "$room/hand" >"$room/altered"
    expect "$1" "formulas: $room/altered: $3" "$(told rule=any streams="$room/altered")"
}
altered "a job that is missing" '/^B 1 2/d;s/^0\*3 | 0\*3 | 0\*3/0*3 | 0*3 | 0*2/' "B 1 6 is missing"
altered "a job of another repetition" 's/^B 0 1/B 0 0/' "B 0 0 occurs twice, or reads two versions"
altered "an update that is missing" '/^U 1 1/d;s/^0\*3 | 0\*3 | 0\*3/0*3 | 0*2 | 0*3/' "U 1 1 runs on 0 ranks, U 1 0 on 1"
altered "no version" 's/^F 1 0 v0/F 1 0/' "F 1 0 does not say which version it reads"
finish
