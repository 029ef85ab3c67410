#!/usr/bin/env bash
# Non-finite numbers: every loop (ranks in one process, ranks as processes, the CUDA stand-in) stops by default and
# names the step, the rank and the first such number. The last finite checkpoint stays, whatever --keep says.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
. tests/support/ranks.sh
text=(--data /usr/share/common-licenses/GPL-3 --steps 9)
gpt=(-D workers=2 -D batches=4 --model schedules/models/gpt.lua -D layers=2 -D width=16 -D context=32 -D rows=2 -D lr=1e30)
end="the training has stopped; lower lr, or clip the gradient (-D clip=1); --allow-nonfinite continues"
loss="step 2: the loss of microbatch 0, on rank 1, is nan"

# stops WHAT MESSAGE ARGS...: a run in one process exits with 2 and the message; with --allow-nonfinite it warns and
# succeeds.
stops() {
    local got
    train "${@:3}" >/dev/null
    expect "$1: exit code, message" "2 pianola: error: $2: $end" "$? $(grep 'error:' "$room/stderr")"
    got=$(train "${@:3}" --allow-nonfinite | field steps)
    expect "$1, allowed" "9 pianola: warning: $2; the training continued (--allow-nonfinite)" "$got $(grep 'warning: step' "$room/stderr")"
}
stops "a loss" "$loss" schedules/1f1b.lua "${gpt[@]}" "${text[@]}"
stops "a loss, interleaved" "${loss/rank 1/rank 0}" schedules/zbv.lua "${gpt[@]}" "${text[@]}"
sed 's/lr = 0.015625/lr = 3e38/' tests/training/recipe/integers.lua >"$room/steep.lua"
integers=(-D workers=4 --model "$room/steep.lua" -D batches=8 -D optimizer=sgd -D schedule=constant -D warmup=0 --steps 9)
stops "weights" "step 1: after the update, layer.0.weight on rank 0 has -inf" schedules/1f1b.lua "${integers[@]}"
PIANOLA_CUDA=$PWD/build/standin/libpianola-cuda.so stops "a loss on a GPU" "$loss" schedules/1f1b.lua "${gpt[@]}" "${text[@]}" --device cuda
PIANOLA_CUDA=$PWD/build/standin/libpianola-cuda.so train schedules/1f1b.lua "${integers[@]}" --device cuda --steps 1 >/dev/null
expect "weights on a GPU, at the end" "2 1" "$? $(grep -c 'error: step 1: after the update, layer.0.weight on rank 0 has -inf' "$room/stderr")"
train schedules/1f1b.lua "${gpt[@]}" "${text[@]}" -D lr=0.01 >/dev/null
expect "a training that stays finite" "0 0" "$? $(grep -c 'not finite\|nan\|inf' "$room/stderr")"
train schedules/1f1b.lua "${gpt[@]}" "${text[@]}" --metrics "$room/metrics" >/dev/null
expect "metrics up to the step before the stop" "1 2 3" "$(sed -nE 's/.*"step": ([0-9]*), "loss.*/\1/p' "$room/metrics" | paste -sd' ')"

saves=("${text[@]}" --checkpoint "$saved" --every 1 --keep 2)
kept() { (cd "$saved" && echo step-*) | sed 's/step-0*//g'; }
compiled two 1f1b "${gpt[@]}"
suffix=.gpu PKG_CONFIG_PATH=$PWD/build/standin:$PKG_CONFIG_PATH compiled gpu 1f1b "${gpt[@]}"
for how in "tcp two" "mpi two" "gpu gpu"; do
    start() { if [ "$how" = "gpu gpu" ]; then suffix=.gpu tcp gpu 2 --messages put "$@"; else ${how% *} two 2 "$@"; fi; ended 60; }
    start "${saves[@]}"
    expect "ranks, $how: exit codes, message" "yes pianola: error: $loss: $end; --resume continues from the checkpoint of step 1" \
        "$(grep -qE '^2( 2)*$' <<<"$codes" && echo yes) $(said error:)"
    expect "ranks, $how: the checkpoints that are kept" 1 "$(kept)"
    start "${saves[@]}" --resume --allow-nonfinite
    expect "ranks, $how: allowed" "pianola: warning: $loss; the training continues (--allow-nonfinite)" "$(said warning: | sed 's/.*pianola/pianola/')"
    expect "ranks, $how: keeps the newest two checkpoints, and the last finite one" "1 8 9" "$(kept)"
    start "${saves[@]}" --resume
    expect "ranks, $how: refuses to resume from a checkpoint that is not finite" "pianola: error: $saved: its newest checkpoint, of step 9, has numbers that \
are not finite: remove such checkpoints to continue from an earlier one, or give --allow-nonfinite" "$(said error:)"
    rm -r "$saved"
done
tcp two 2 "${text[@]}" --allow-nonfinite --json
ended 60
expect "--json is JSON" "None" "$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["loss_last"])' "$room/out0" 2>&1 | tail -n 1)"
finish
