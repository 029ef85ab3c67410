#!/usr/bin/env bash
# Targets from a file of labels: negative ones do not count, and the loss is the mean over all labels of the
# step that count, under every schedule. Judged by numpy.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
. tests/support/ranks.sh
here=tests/training/labels
/usr/bin/python3 $here/labels.py make "$room" || exit 2
model=(--model $here/model.lua)
numpy() { /usr/bin/python3 $here/labels.py "$@"; }
run() { timeout 300 "$PIANOLA" run "$@" --weights "$room/weights.safetensors" --json 2>"$room/said"; }
rounded() { awk '{ printf "%.5f\n", $1 }'; }

# ---- one step of all 16 sequences: numpy's loss and weights ----
wanted=$(numpy step "$room" text)
after() { # SCHEDULE ARGS...: the loss, and whether the weights after a step are numpy's
    rm -rf "$room/saved" "$room/after"
    run "schedules/$1.lua" "${model[@]}" "${@:2}" --data "$room/text.bin" --steps 1 --checkpoint "$room/saved" --every 1 | field loss_first | rounded
    "$PIANOLA" export-weights "$room/saved" -o "$room/after.own" >/dev/null
    numpy after "$room" text "$room/after.own"
}
for how in "serial -D stages=1 -D batches=8" "1f1b -D workers=2 -D batches=8" "zbv -D workers=2 -D batches=8" "ddp -D workers=2 -D batches=8" \
    "fsdp -D workers=2 -D stages=2 -D batches=8" "1f1b -D workers=2 -D batches=4 -D rows=4" "seq1f1b -D workers=2 -D batches=8" \
    "tp -D workers=2 -D tensor=2 -D batches=8" "1f1b -D workers=2 -D batches=8 --recompute"; do
    set -- $how
    expect "$how: numpy's loss and weights" "$wanted near" "$(after "$@" | paste -sd' ')"
done
# The same, with a unit as head and loss. The file's head is turned, so the unit has a file of its own.
/usr/bin/python3 -c 'import sys; sys.path.insert(0, sys.argv[1]); from labels import *
w = load(sys.argv[2] + "/weights.safetensors"); head = w.pop("head.weight")
save(sys.argv[2] + "/three.safetensors", w); save(sys.argv[2] + "/head.safetensors", {"weight": np.ascontiguousarray(head.T)})' $here "$room"
sed "s,side = { ,data = '$room/head.safetensors'\, &," $here/model.lua | sed "s,\.\./\.\./models,$PWD/tests/models," >"$room/model.lua"
headed() { timeout 300 "$PIANOLA" run "$@" --weights "$room/three.safetensors" --json 2>"$room/said"; }
for how in "1f1b -D workers=2 -D batches=8" "zbv -D workers=2 -D batches=8" "ddp -D workers=2 -D batches=8"; do
    set -- $how
    rm -rf "$room/saved"
    expect "a unit with its loss, $how" "$wanted"$'\n'near "$(headed "schedules/$1.lua" --model "$room/model.lua" -D unit=true "${@:2}" --data "$room/text.bin" --steps 1 \
        --checkpoint "$room/saved" --every 1 | field loss_first | rounded; "$PIANOLA" export-weights "$room/saved" -o "$room/after.own" >/dev/null; numpy after "$room" text "$room/after.own")"
done
expect "its check has targets that do not count" "x weight" "$(sed 's/return c->targets\[r\] < 0 ? 0 : /return /' tests/models/units/head.c >"$room/head.c"
    sed "s,\.\./\.\./models/units,$room," $here/model.lua >"$room/reckless.lua"; "$PIANOLA" check-unit "$room/reckless.lua" head -D unit=true 2>&1 | awk '/wrong$/ { print $1 }' | paste -sd' ')"
expect "a loss of several columns" "pianola: error: layer 5 (mean_loss): its input has 2 columns, but it adds up one loss for each row; let the unit before it have width = 1, or \
end with cross_entropy" "$("$PIANOLA" check schedules/serial.lua -D stages=1 --model <(sed "s,width = 1\,,width = 2\,,;s,\.\./\.\./models,$PWD/tests/models," $here/model.lua) -D unit=true 2>&1)"
for how in "1f1b -D workers=2 -D batches=8" "zbv -D workers=2 -D batches=8" "interleaved -D workers=2 -D batches=8"; do
    set -- $how
    expect "$how: one rank's bits" true "$(run "schedules/$1.lua" "${model[@]}" "${@:2}" --data "$room/text.bin" --steps 3 --compare | field one_rank_same_weights)"
done

# ---- labels that are the next tokens: the bits of a training without labels ----
weights() { run schedules/1f1b.lua -D workers=2 -D batches=8 "${model[@]}" "$@" --steps 3 | field weights; }
expect "the tokens themselves as labels change no bit" "$(weights -D labels=false --data "$room/plain.bin")" "$(weights --data "$room/all.bin")"

# ---- a validation counts each label once, whatever its steps ----
for batches in 1 2 3 8; do
    expect "held-out text in steps of $batches microbatches" "$(numpy step "$room" held)" \
        "$("$PIANOLA" run schedules/serial.lua "${model[@]}" -D stages=1 -D batches=$batches --weights "$room/weights.safetensors" --data "$room/text.bin" --val "$room/held.bin" \
            --steps 0 --json 2>/dev/null | field validation_loss | rounded)"
done

# ---- updates within the step: each microbatch's own mean; random labels ----
for rows in 1 8; do # with rows = 1, some microbatches have no label
    run schedules/pipedream.lua "${model[@]}" -D lr=0.05 -D rows=$rows --data "$room/text.bin" --steps 8 >"$room/pipedream"
    expect "PipeDream trains, $rows sequences a microbatch" "8 finite" "$(field steps <"$room/pipedream") $(field loss_last <"$room/pipedream" |
        awk '{ print ($1 > 0 && $1 < 20 ? "finite" : $1) }')"
done
expect "without --data, random labels" "true" "$(run schedules/1f1b.lua -D workers=2 -D batches=8 "${model[@]}" --steps 3 --compare | field one_rank_same_weights)"

# ---- ranks as processes ----
compiled labels 1f1b -D workers=2 -D batches=8 "${model[@]}" >/dev/null 2>&1
tcp labels 2 --data "$room/text.bin" --weights "$room/weights.safetensors" --steps 3 --json
wait
expect "ranks over TCP: the bits of run" "$(weights --data "$room/text.bin")" "$(field weights <"$room/out0")"

# Rank 0, which records the validation, reads neither inputs nor labels.
validated=(--data "$room/text.bin" --val "$room/held.bin" --weights "$room/weights.safetensors" --steps 2)
compiled middle "../$here/middle" "${model[@]}" >/dev/null 2>&1
tcp middle 3 "${validated[@]}"
wait
expect "a validation whose labels rank 0 does not read" "$("$PIANOLA" run $here/middle.lua "${model[@]}" "${validated[@]}" 2>&1 | grep '^validation: step 2 ')" \
    "$(said '^validation: step 2 ')"

# ---- a GPU ----
if [ -f build/standin/libpianola-cuda.so ]; then
    on_gpu() { PIANOLA_CUDA=build/standin/libpianola-cuda.so run "schedules/$1.lua" "${model[@]}" "${@:2}" --data "$room/text.bin" --device cuda; }
    for how in "1f1b -D workers=2 -D batches=8" "seq1f1b -D workers=2 -D batches=8" "tp -D workers=2 -D tensor=2 -D batches=8"; do
        set -- $how
        expect "a GPU, $how: numpy's loss" "$wanted" "$(on_gpu "$@" --steps 1 | field loss_first | rounded)"
    done
    mean_of() { "$PIANOLA" run schedules/1f1b.lua "${model[@]}" -D workers=2 -D batches=3 -D mean=true -D lr=0.01 --data "$room/text.bin" --steps 4 --json "$@" 2>/dev/null |
        field loss_last | awk '{ printf "%.4f", $1 }'; }
    expect "a GPU: mean_loss, as on the host" "$(mean_of)" "$(PIANOLA_CUDA=build/standin/libpianola-cuda.so mean_of --device cuda)"
    expect "a GPU: PipeDream, microbatches without labels" "$(run schedules/pipedream.lua "${model[@]}" -D lr=0.05 -D rows=1 --data "$room/text.bin" --steps 4 | field loss_last | awk '{ printf "%.4f", $1 }')" \
        "$(on_gpu pipedream -D lr=0.05 -D rows=1 --steps 4 | field loss_last | awk '{ printf "%.4f", $1 }')"
    expect "a GPU: another count in each step, in one graph" \
        "$(run schedules/1f1b.lua -D workers=2 -D batches=3 "${model[@]}" --data "$room/text.bin" --steps 4 | field loss_last | awk '{ printf "%.4f", $1 }')" \
        "$(on_gpu 1f1b -D workers=2 -D batches=3 --steps 4 | field loss_last | awk '{ printf "%.4f", $1 }')"
fi

# ---- refusals ----
says() { "$PIANOLA" run schedules/1f1b.lua -D workers=2 -D batches=8 "${model[@]}" --data "$room/$1.bin" --steps 1 2>&1 | grep error: | sed "s,$room/,,g"; }
expect "no labels" "pianola: error: plain.bin.labels.npy: No such file or directory" "$(says plain)"
expect "too few" "pianola: error: short.bin.labels.npy: has 96 rows of 1 integers, but short.bin has 97 tokens, each with 1 integers" "$(says short)"
expect "floats" "pianola: error: floats.bin.labels.npy: has 97 rows of 1 floats, but floats.bin has 97 tokens, each with 1 integers" "$(says floats)"
expect "too large" "pianola: error: large.bin.labels.npy: row N has 16, but labels must be less than 16" "$(says large | sed 's/row [0-9]*/row N/')"
expect "big-endian" "pianola: error: halves.bin.labels.npy: its type is '>i4'; save it as int8 to int64, or as float32, little-endian" "$(says halves)"
expect "no array" "pianola: error: broken.bin.labels.npy: is no array of NumPy; write it with numpy.save" "$(says broken)"
expect "a step without any label" "pianola: error: step 1: no label counts, so it has no loss: the training has stopped; give steps more sequences, or leave out text \
without labels; --allow-nonfinite continues" "$(says none)"
finish
