#!/usr/bin/env bash
# Checks the training recipe through the real command: learning rates against a formula in Python, and updates against
# numpy. Validation gives the same loss under every schedule; --resume keeps rates and metrics. The matrix
# (tests/training/matrix/updates.tsv) compares optimizers and validated runs with one rank.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
. tests/support/ranks.sh
trap 'rm -rf "$room"' EXIT
for numpy in ${PYTHON:-python3 /usr/bin/python3}; do # make deps installs numpy for the second
    ! "$numpy" -c 'import numpy' 2>/dev/null || break
done
judge() { python3 -B tests/training/recipe/judge.py "$@" 2>&1 | tail -n 1; }
head -c 30000 /usr/share/common-licenses/GPL-3 >"$room/train"
tail -c 4000 /usr/share/common-licenses/GPL-3 >"$room/held"
tiny=(--model schedules/models/gpt.lua -D layers=4 -D width=16 -D heads=2 -D context=16 -D rows=2 -D batches=4)

for schedule in constant linear cosine wsd; do
    for at in "0 0" "7 0" "5 20"; do
        read -r warmup steps <<<"$at"
        train schedules/serial.lua "${tiny[@]}" -D width=8 --steps 30 -D lr=0.001 -D schedule=$schedule -D warmup="$warmup" \
            -D steps="$steps" -D final=0.25 --metrics "$room/rates" >/dev/null
        expect "$schedule, warm-up $warmup, steps $steps: Python's rates" "" \
            "$(judge rates "$room/rates" $schedule 0.001 "$warmup" "$((steps ? steps : 30))" 0.25 0.2)"
    done
done

# Recomputes updates with numpy, from the checkpoints before and after one.
for optimizer in adamw momentum "momentum -D nesterov=true" muon; do
    # shellcheck disable=SC2086
    compiled "one" serial --model tests/training/recipe/small.lua -D optimizer=$optimizer -D batches=4 -D stages=1
    tcp one 1 --steps 10 --every 1 --keep 10 --checkpoint "$saved" --data "$room/train"
    ended 60
    expect "$optimizer: weights and moments of step 4" "" \
        "$($numpy -B tests/training/recipe/updates.py "$saved" ${optimizer/ -D nesterov=true/ nesterov} 2>&1 | tail -n 1)"
    rm -r "$saved" "$room/one"
done

for schedule in fsdp.lua zero1.lua zero2.lua "tp.lua"; do
    # shellcheck disable=SC2086
    expect "muon, $schedule: refused" 1 "$("$PIANOLA" check schedules/$schedule --model tests/training/recipe/small.lua -D optimizer=muon \
        2>&1 | grep -c 'muon steps whole matrices\|split\|divide')"
done
# Validation.
recipe=(-D schedule=cosine -D warmup=3 -D decay=0.1 --data "$room/train")
for schedule in serial 1f1b zbv ddp fsdp zero1 fslpp dp_tp_pp seq1f1b terapipe weipipe 1f1b_offload pipedream pipedream_2bw; do
    here=("schedules/$schedule.lua" "${tiny[@]}" "${recipe[@]}" --steps 6)
    train "${here[@]}" --val "$room/held" --val-every 2 --metrics "$room/$schedule" >/dev/null
    [[ $schedule == pipedream* ]] || expect "$schedule: losses of one rank" "" "$(judge same "$room/serial" "$room/$schedule")"
done
for schedule in 1f1b seq1f1b pipedream; do # on the CUDA stand-in, with graphs and periods
    here=("schedules/$schedule.lua" "${tiny[@]}" "${recipe[@]}" --steps 6 --device cuda)
    export PIANOLA_CUDA=$PWD/build/standin/libpianola-cuda.so
    train "${here[@]}" --val "$room/held" --val-every 2 --metrics "$room/gpu" >/dev/null
    expect "$schedule on a GPU: losses of the host" "" "$(judge same "$room/$schedule" "$room/gpu")"
    unset PIANOLA_CUDA
done
head -c $((248 * 16 + 1)) "$room/held" >"$room/even" # 31 steps of 8 sequences
still=("${tiny[@]}" -D lr=1e-30 --data "$room/even")
train schedules/serial.lua "${still[@]}" --steps 31 --metrics "$room/epoch" >/dev/null
train schedules/1f1b.lua "${still[@]}" --steps 4 --val "$room/even" --val-every 2 --metrics "$room/same" >/dev/null
expect "a validation is an epoch that changes nothing" "" "$(judge mean "$room/epoch" "$room/same")"
train schedules/1f1b.lua "${tiny[@]}" "${recipe[@]}" --steps 6 --val "$room/held" --val-every 2 -D clip=1 --metrics "$room/told" --tensorboard "$room/one" >/dev/null
expect "TensorBoard's file of one process agrees with the metrics" "" "$(judge board "$room/one" "$room/told")"
train schedules/1f1b.lua "${tiny[@]}" "${recipe[@]}" --steps 6 --val "$room/held" --val-every 2 --loss-svg "$room/svg" >/dev/null
expect "the picture has both lines" "" "$(judge picture "$room/svg" 2)"
train schedules/1f1b.lua "${tiny[@]}" "${recipe[@]}" --steps 6 --loss-svg "$room/svg" >/dev/null
expect "the picture of a run without validation has one line" "" "$(judge picture "$room/svg" 1)"

train schedules/1f1b.lua "${tiny[@]}" "${recipe[@]}" --steps 3 --val "$room/held" --metrics "$room/last" >/dev/null
expect "a training shorter than --val-every is validated before it and at its end" "0 3" "$(sed -n 's/.*"step": \([0-9]*\), "validation_loss".*/\1/p' "$room/last" | paste -sd' ')"
# Every sequence counts once, whatever a step holds: 1 and 15 sequences in steps of 1, 2, 8 and 24, here and on the
# stand-in.
for n in 1 15; do
    head -c $((n * 16 + 3)) "$room/train" >"$room/few"
    wanted=
    for at in "1 1" "2 1" "2 4" "12 2"; do
        here=("${tiny[@]}" -D lr=1e-30 -D rows="${at% *}" -D batches="${at#* }" --data "$room/train" --steps 1 --val "$room/few")
        for on in "serial" "seq1f1b -D workers=2" "1f1b -D workers=2 --device cuda"; do
            # shellcheck disable=SC2086
            PIANOLA_CUDA=$PWD/build/standin/libpianola-cuda.so train "schedules/${on%% *}.lua" ${on#"${on%% *}"} "${here[@]}" --metrics "$room/few.metrics" >/dev/null
            got=$(sed -nE 's/.*"validation_loss": ([0-9.]{7}).*/\1/p' "$room/few.metrics" | paste -sd' ')
            expect "$n held-out sequences, steps of $at, $on" "${wanted:=$got}" "$got"
        done
    done
done
warmed() { "$PIANOLA" run schedules/1f1b.lua "${tiny[@]}" --data "$room/train" --steps "$1" -D warmup=7 -D lr=0.07 2>&1 | sed -n 's/pianola: warning: //p'; }
expect "a warm-up that does not end" "warmup = 7, but the training has 2 updates: its rate rises only to 0.02, not to lr = 0.07" "$(warmed 2)"
expect "a warm-up that ends" "" "$(warmed 7)"
train schedules/1f1b.lua "${tiny[@]}" --data "$room/train" --steps 2 -D lr=1e30 --allow-nonfinite >"$room/json"
expect "--json of a loss that is NaN" "None" "$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["loss_last"])' "$room/json" 2>&1 | tail -n 1)"

# Ranks as processes; a run that stops and resumes.
flags=(--data "$room/train" --val "$room/held" --val-every 2 --checkpoint "$saved" --every 3)
compiled piped 1f1b "${tiny[@]}" -D workers=2 -D schedule=cosine -D warmup=3 -D decay=0.1
unbroken=$(train schedules/1f1b.lua "${tiny[@]}" -D workers=2 "${recipe[@]}" --steps 6 --val "$room/held" --val-every 2 --metrics "$room/whole" | field weights)
tcp piped 2 "${flags[@]}" --steps 6 --metrics "$room/ranks" --tensorboard "$room/board"
ended 60
expect "ranks: the weights of the run in one process" "$unbroken" "$(weights)"
expect "ranks: its metrics" "" "$(judge same "$room/whole" "$room/ranks")"
rm -r "$saved/step-00000006"
mpi piped 2 "${flags[@]}" --steps 6 --metrics "$room/ranks" --tensorboard "$room/board" --resume
ended 60
expect "resumed within the schedule: the same weights" "$unbroken" "$(weights)"
expect "resumed: no line twice" "" "$(judge same "$room/whole" "$room/ranks")"
rm -r "$saved/step-00000006"
tcp piped 2 "${flags[@]}" --steps 8 --metrics "$room/ranks" --tensorboard "$room/board" --resume
ended 60
expect "eight steps of a training that was started with six" "1 2 3 4 5 6 7 8" "$(judge steps "$room/ranks")"
expect "these eight steps have the rates of six" "" "$(judge rates "$room/ranks" cosine 0.003 3 6 0 0.2)"
expect "the run reports that its rates are for six steps" 1 "$(grep -c 'follows the 6 steps' "$room/err0")"
expect "TensorBoard's files of these three runs agree with the metrics" "" "$(judge board "$room/board" "$room/ranks")"
tcp piped 2 --steps 2 --data "$room/train" --val "$room/held" --metrics "$room/short" --resume --checkpoint "$room/fresh"
ended 60
expect "ranks: a short training is validated at its end" 1 "$(grep -c '"step": 2, "validation_loss"' "$room/short")"
expect "ranks: a warm-up that does not end" 1 "$(grep -c 'warning: warmup = 3, but the training has 2 updates: its rate rises only to 0.002, not to lr = 0.003' "$room/err0")"
echo "a poem" >"$room/poem"
tcp piped 2 --steps 1 --metrics "$room/poem"
ended 60
expect "no other file is overwritten" "a poem 2" "$(cat "$room/poem") ${codes%% *}"
finish
