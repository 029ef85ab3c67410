#!/usr/bin/env bash
# Asynchronous training equals the papers' formulas bit for bit. The real command trains a chain of linear and relu
# layers on integers. build/formulas (train.c) trains it too, one microbatch at a time, from the formulas alone. The
# program's declared versions and its final weights must both match. Then random schedules, which have no formula, train
# with the versions that they declare.
#
#   CASES=5000 tests/training/asynchronous/test.sh    more random schedules; to repeat one: -D seed=N
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
here=tests/training/asynchronous
formulas=$(dirname "$PIANOLA")/formulas
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT

field() { sed -nE "s/^ *\"?$1\"?:? \"?([^,\"]*)\"?,?$/\1/p" <<<"$2"; }
near() { awk -v a="$1" -v b="$2" 'BEGIN { print a != "" && b != "" && (a - b) ^ 2 <= (1e-5 * b) ^ 2 ? "yes" : a " and " b }'; }

# chain STAGES LAYERS FEATURES ROWS LR STEPS [ADAM]: sets the model that the following commands train.
chain() {
    model=(--model $here/chain.lua -D "stages=$1" -D "layers=$2" -D "features=$3" -D "rows=$4" -D "lr=$5" -D "adam=${7-0}")
    terms=("stages=$1" "layers=$2" "features=$3" "rows=$4" "lr=$5" "adam=${7-0}")
    steps=$6
}

# trains WHAT RULE SCHEDULE ARGS...: expects the rule's versions in the program, and its weights in the end. Leaves the
# program in $room/streams, and the formula's output in $wanted.
more=() # more arguments for $formulas
trains() {
    local what=$1 rule=$2 run
    shift 2
    timeout 60 "$PIANOLA" show "$@" "${model[@]}" --format streams >"$room/streams" 2>"$room/err" ||
        { expect "$what: compiles" "" "$(cat "$room/err")" && return; }
    wanted=$("$formulas" "${terms[@]}" steps="$steps" rule="$rule" streams="$room/streams" "${more[@]}" 2>&1) ||
        { expect "$what: the formula" "" "$wanted" && return; }
    run=$(timeout 120 "$PIANOLA" run "$@" "${model[@]}" --steps "$steps" --json 2>&1)
    [[ ${terms[*]} == *adam=1* ]] ||
        expect "$what: weights" "$(field weights "$wanted")" "$(field weights "$run")"
    expect "$what: loss" yes "$(near "$(field loss_last "$run")" "$(field loss "$wanted")")"
}
repeats() { sed -n 's/^period [0-9]* times \([0-9]*\)$/\1/p' "$room/streams"; }

# ---- the reference itself ----

# Trains with one update at the end of a step, as every test of such schedules checks.
chain 4 2 8 2 21 3
for schedule in 1f1b gpipe ddp 2bp; do
    trains "$schedule" sync schedules/$schedule.lua -D batches=8 -D workers=4
done
chain 1 2 1 1 8 3
told() { "$formulas" "${terms[@]}" steps="$steps" "$@" 2>&1; }
for rule in stashing vertical naive; do
    expect "$rule with one stage is gradient descent" "$(told batches=12 rule=sync)" "$(told batches=12 rule=$rule)"
done
# Every formula gives other weights than every other formula, and than itself with one update more or less of delay,
# unless that is another formula. Every microbatch reaches every column, and each stage has two layers: the first layer
# of stage 0 has no input gradient, so its backward could read any version.
chain 3 2 2 2 17 2
seen=()
for rule in sync stashing vertical naive double; do
    for late in 0 1 2 -1; do
        seen+=("$(field weights "$(told batches=24 rule=$rule late=$late)")")
    done
done
# Delays of all three stages, forward and backward: sync 0, 1, 2, 0; stashing 210, 321, 432, 100; vertical 2, 3, 4, 1;
# naive forward 210, 321, 432, 100; double 1, 2, 3, 0.
expect "formulas differ" 13 "$(printf '%s\n' "${seen[@]}" | sort -u | grep -c .)"

# A program written by hand: two stages, weight stashing, seven microbatches, five of them in the period.
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
expect "a period by hand" "$(told rule=stashing batches=7)" "$(told rule=stashing streams="$room/hand")"
expect "the declared versions, with any rule" "$(told rule=stashing batches=7)" "$(told rule=any streams="$room/hand")"
expect "the versions under another rule" \
    "formulas: F 0 1 reads version 0, by the rule 1" "$(told rule=sync streams="$room/hand")"
# altered WHAT SED MESSAGE: expects the message for the program by hand after the change.
altered() {
    sed "$2" "$room/hand" >"$room/altered"
    expect "$1" "formulas: $room/altered: $3" "$(told rule=any streams="$room/altered")"
}
altered "a missing job" '/^B 1 2/d;s/^0\*3 | 0\*3 | 0\*3/0*3 | 0*3 | 0*2/' "B 1 6 is missing"
altered "a job of another repetition" 's/^B 0 1/B 0 0/' "B 0 0 occurs twice, or reads two versions"
altered "a missing update" '/^U 1 1/d;s/^0\*3 | 0\*3 | 0\*3/0*3 | 0*2 | 0*3/' "U 1 1 runs on 0 ranks, U 1 0 on 1"
altered "no version" 's/^F 1 0 v0/F 1 0/' "F 1 0 does not say which version it reads"

# ---- schedules that have a formula ----

# differs WHAT RULE: checks that the program's weights reveal delays that are one update longer or shorter.
differs() {
    local late other batches updates
    batches=$(awk '/^program/ { b = $8 } /^period/ { b += ($4 - 1) * $2 } /^rank/ { print b; exit }' "$room/streams")
    updates=$(sed -n 's/^updates //p' "$room/streams" | tr ' ' ,)
    for late in 1 -1; do
        other=$(told rule="$2" batches="$batches" updates="$updates" late=$late)
        expect "$1: late=$late gives other weights" yes \
            "$([ "$(field weights "$other")" != "$(field weights "$wanted")" ] && echo yes || echo "$other")"
    done
}

# Learning rates are small enough that the first steps keep the integers exact. Each microbatch reaches every column (in
# 2BW, two microbatches do), and each stage has two layers (see above).
replicas=(0 1 1,1 1,1,1 1,1,1,1)
for n in 2 3 4; do
    for batches in 4 24 100; do
        chain $n 2 2 2 $((4 * n + 5)) 2
        more=("batches=$batches")
        for rule in stashing naive vertical; do
            name=pipedream size=(-D "workers=$n")
            [ $rule != stashing ] && name+=_$rule || size=(-D "replicas=${replicas[n]}")
            trains "$rule, $n stages, $batches microbatches" $rule schedules/$name.lua "${size[@]}" -D batches=$batches
            [ $batches = 4 ] || expect "$rule, $n stages, $batches microbatches: repeats" yes \
                "$([ "$(repeats)" -gt 1 ] && echo yes)"
            [ $batches = 4 ] || differs "$rule, $n stages, $batches microbatches" $rule
        done
        chain $n 2 4 2 $((4 * n + 5)) 2
        trains "2BW, $n stages, $batches microbatches" double schedules/pipedream_2bw.lua -D workers=$n -D batches=$batches \
            -D update=4
        [ $batches = 4 ] || differs "2BW, $n stages, $batches microbatches" double
    done
done
more=("batches=96")
chain 3 2 8 2 17 2
trains "2BW, updates of 8" double schedules/pipedream_2bw.lua -D workers=3 -D batches=96 -D update=8
more=("batches=24")

# ---- other schedules ----

# Recompute reads the version that the forward read; without stashing, it reads the newest.
chain 3 2 2 2 17 2
trains "stashing, recomputed" stashing schedules/pipedream.lua -D replicas=1,1,1 --recompute
trains "naive, recomputed" any schedules/pipedream_naive.lua -D workers=3 --recompute

# Replicated stages: an update covers as many microbatches as there are replicas.
for replicas in 2,1 1,2 2,2,1 3,1,2 2,4,1,1 7,1; do
    n=$(tr -cd , <<<"$replicas" | wc -c)
    chain $((n + 1)) 2 8 2 $((4 * n + 9)) 2
    more=("batches=84")
    trains "replicas $replicas" replicas schedules/pipedream.lua -D replicas=$replicas -D batches=84
    expect "replicas $replicas: the period repeats" yes "$([ "$(repeats)" -gt 1 ] && echo yes)"
done

# Data parallelism: bulk synchronous steps are gradient descent on one microbatch per worker. In asynchronous ones, a
# worker may be ahead of others by any number of updates.
for workers in 1 2 3 4; do
    chain 3 2 4 2 17 2
    more=("batches=48")
    trains "BSP, $workers workers" sync schedules/bsp.lua -D workers=$workers -D batches=48
    trains "ASP, $workers workers" stashed schedules/asp.lua -D workers=$workers -D batches=48
done
more=("batches=24")
chain 1 2 2 2 9 2
trains "one machine" sync schedules/bsp.lua -D workers=1
chain 4 2 2 2 21 2
trains "model parallelism" sync schedules/model_parallel.lua

# Teams: each member holds and updates a part of the layers, and reads the formula's version. Four ranks can divide the
# features, and a pair of layers lies in one stage or in two.
for tensor in 2 4; do
    chain 3 2 4 4 17 2
    more=("batches=24")
    for rule in stashing naive vertical; do
        name=pipedream size=(-D workers=3)
        [ $rule != stashing ] && name+=_$rule || size=(-D replicas=1,1,1)
        trains "$rule, teams of $tensor" $rule schedules/$name.lua "${size[@]}" -D tensor=$tensor
        expect "$rule, teams of $tensor: the period repeats" yes "$([ "$(repeats)" -gt 1 ] && echo yes)"
        differs "$rule, teams of $tensor" $rule
    done
    chain 3 1 4 4 13 2
    trains "stashing, pairs of layers in two stages, teams of $tensor" stashing schedules/pipedream.lua -D replicas=1,1,1 \
        -D tensor=$tensor
    chain 3 2 8 4 17 2
    trains "2BW, teams of $tensor" double schedules/pipedream_2bw.lua -D workers=3 -D update=4 -D tensor=$tensor
    trains "replicas of teams of $tensor" replicas schedules/pipedream.lua -D replicas=2,2,1 -D tensor=$tensor
    trains "naive, recomputed, teams of $tensor" any schedules/pipedream_naive.lua -D workers=3 -D tensor=$tensor --recompute
    trains "ASP, teams of $tensor" stashed schedules/asp.lua -D workers=3 -D tensor=$tensor
    trains "BSP, teams of $tensor" sync schedules/bsp.lua -D workers=3 -D tensor=$tensor
    trains "model parallelism, teams of $tensor" sync schedules/model_parallel.lua -D workers=3 -D tensor=$tensor
done

# Adam counts a stage's updates, not steps; otherwise its first moves would be several times as long or as short.
chain 3 2 2 2 7 3 1
trains "Adam, stashing" stashing schedules/pipedream.lua -D replicas=1,1,1
chain 3 2 4 2 7 3 1
trains "Adam, 2BW" double schedules/pipedream_2bw.lua -D workers=3
trains "Adam, replicas" replicas schedules/pipedream.lua -D replicas=2,2,1

# ---- processes, and the CUDA runtime ----

# Over MPI, compares the checkpoint's parameters with the formula's, one by one.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PKG_CONFIG_PATH=$PWD/build:$PKG_CONFIG_PATH
over_mpi() { # WHAT RULE SCHEDULE ARGS...
    local what=$1 rule=$2 out=$room/mpi
    rm -rf "$out" "$room/saved"
    "$PIANOLA" compile "${@:3}" "${model[@]}" -o "$out" && make -s -C "$out" || expect "$what: compiles" 0 1
    cp "$out/streams.txt" "$room/streams"
    timeout 120 mpirun --oversubscribe --app <(sed "s|\$| --steps $steps --checkpoint $room/saved|" "$out/app.mpi") \
        >"$room/log" 2>&1
    "$PIANOLA" export-weights "$room/saved" -o "$room/weights" >>"$room/log" 2>&1
    wanted=$(told rule="$rule" streams="$room/streams" weights="$room/weights" | head -n 1)
    expect "$what over MPI" "$(sed -nE 's/^(weights) *([0-9a-f]*).*/\1 \2/p' "$room/log")" "$wanted"
    [ -n "$wanted" ] || cat "$room/log"
}
chain 3 2 2 2 17 2
over_mpi stashing stashing schedules/pipedream.lua -D replicas=1,1,1
over_mpi vertical vertical schedules/pipedream_vertical.lua -D workers=3
over_mpi naive naive schedules/pipedream_naive.lua -D workers=3
over_mpi "model parallelism" sync schedules/model_parallel.lua -D workers=3
chain 3 2 4 2 17 2
over_mpi 2BW double schedules/pipedream_2bw.lua -D workers=3 -D update=4
over_mpi replicas replicas schedules/pipedream.lua -D replicas=2,2,1
over_mpi ASP stashed schedules/asp.lua -D workers=3 -D batches=12
over_mpi "stashing, teams" stashing schedules/pipedream.lua -D replicas=1,1,1 -D tensor=2
over_mpi BSP sync schedules/bsp.lua -D workers=3
# The last one differs in the last bit of one element: the comparison sees it.
python3 - "$room/weights" <<'EOF'
import sys
with open(sys.argv[1], "r+b") as f:
    f.seek(-4, 2)
    last = f.read(1)[0]
    f.seek(-4, 2)
    f.write(bytes([last ^ 1]))
EOF
expect "one different bit is detected" yes "$(told rule=sync streams="$room/streams" weights="$room/weights" |
    grep -q 'layer.10.weight\[3,3\] is .*, by the formula ' && echo yes)"

export PIANOLA_CUDA=$PWD/build/standin/libpianola-cuda.so
if [ -f "$PIANOLA_CUDA" ]; then
    on_standin() { # WHAT RULE SCHEDULE ARGS...
        local what=$1 rule=$2
        "$PIANOLA" show "${@:3}" "${model[@]}" --format streams >"$room/streams" 2>/dev/null
        wanted=$(told rule="$rule" streams="$room/streams")
        expect "$what on the stand-in for a GPU" "$(field weights "$wanted")" \
            "$(field weights "$(timeout 200 "$PIANOLA" run "${@:3}" "${model[@]}" --steps "$steps" --json --device cuda 2>&1)")"
        [ -n "$(field weights "$wanted")" ] || expect "$what: the formula" "" "$wanted"
    }
    chain 3 2 4 4 17 3 # the first step is eager, the others are graphs; products need rows that begin at multiples of 64 bytes
    on_standin stashing stashing schedules/pipedream.lua -D replicas=1,1,1
    on_standin vertical vertical schedules/pipedream_vertical.lua -D workers=3
    on_standin naive naive schedules/pipedream_naive.lua -D workers=3
    chain 3 2 4 2 17 3
    on_standin 2BW double schedules/pipedream_2bw.lua -D workers=3 -D update=4
    on_standin replicas replicas schedules/pipedream.lua -D replicas=2,2,1
    on_standin ASP stashed schedules/asp.lua -D workers=3 -D batches=12
    chain 3 2 8 4 17 3
    on_standin "stashing, teams," stashing schedules/pipedream.lua -D replicas=1,1,1 -D tensor=2
    on_standin "2BW, teams," double schedules/pipedream_2bw.lua -D workers=3 -D update=4 -D tensor=2
else
    expect "make standin has built $PIANOLA_CUDA" yes no
fi

# ---- at random ----

# Every stage's rule, ranks, updates and order are random; the program declares the versions it reads. If a version must
# be newer than the order of jobs allows, the schedule deadlocks and the compiler must say so. Some members of a team
# update faster than others, so the newest version differs between them.
more=() trained=0 deadlocked=0
unequal=(--cluster schedules/clusters/unequal.lua -D speed=3,1,2,0.7,1,0.3)
for ((seed = 1; trained < ${CASES:-40}; seed++)); do
    "$PIANOLA" show $here/random.lua -D seed=$seed --format streams >"$room/drawn" 2>"$room/err"
    if grep -q 'error: .*deadlock: ' "$room/err"; then
        deadlocked=$((deadlocked + 1))
        continue
    fi
    trained=$((trained + 1))
    n=$(sed -n 's/^program .* stages \([0-9]*\) .*/\1/p' "$room/drawn")
    chain "${n:-1}" 2 12 2 $((4 * ${n:-1} + 5)) 2
    trains "random schedule, seed $seed" any $here/random.lua -D seed=$seed
    trains "random schedule of teams, seed $seed" any $here/random.lua -D seed=$seed -D tensor=2 "${unequal[@]}"
done
expect "deadlocks of $trained random schedules are few ($deadlocked)" yes \
    "$([ $deadlocked -le $((2 + trained / 2)) ] && echo yes || echo no)"
finish
