#!/usr/bin/env bash
# Layers of our own that are frozen: their stages train to one rank's bits and to numpy's losses, their bytes never change,
# and nobody holds gradients, optimizer state or a home's share of them.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
. tests/support/ranks.sh
trap 'rm -rf "$room"' EXIT
here=tests/models/frozen
/usr/bin/python3 $here/lora.py make "$room"
cp $here/lora.lua $here/integers.lua $here/gain.c "$room/"
export XDG_CACHE_HOME=$room/cache
model=(--model "$room/lora.lua" -D batches=8)
text=(--data "$room/text.bin" --weights "$room/tied.safetensors") # which lacks the output matrix
run() { timeout 300 "$PIANOLA" run "$@" --json 2>/dev/null; }

# ---- one rank's bits, and numpy's losses ----
for schedule in 1f1b zbv interleaved zb_h1 gpipe "1f1b -D alone=true" "zb_h1 -D alone=true" "1f1b --recompute" "1f1b -D tied=true" \
    "zbv -D tied=true" "interleaved -D tied=true"; do
    set -- $schedule
    expect "$schedule: one rank's weights" true \
        "$(run "schedules/$1.lua" "${model[@]}" "${text[@]}" "${@:2}" --steps 4 --compare | field one_rank_same_weights)"
done
for schedule in 1f1b zbv interleaved fsdp ddp seq1f1b; do
    expect "$schedule: one rank's weights where all sums are exact" true \
        "$(run "schedules/$schedule.lua" --model "$room/integers.lua" --steps 4 --compare | field one_rank_same_weights)"
done
near() { # STEPS TABLE: whether the table has these losses, within 1e-5
    paste "$room/must" <(cut -f3 "$2" | tail -n +2) | awk -v steps="$1" '{ d = $1 / $2 - 1; if (d > 1e-5 || d < -1e-5) far = far " " $0 }
        END { print NR == steps && !far ? "near" : NR far }'
}
for tied in false true; do
    /usr/bin/python3 $here/lora.py losses "$room" 6 "$([ $tied = false ] || echo tied)" >"$room/must"
    for schedule in 1f1b zbv fsdp interleaved; do
        run schedules/$schedule.lua "${model[@]}" -D tied=$tied "${text[@]}" --steps 6 --losses "$room/losses" >/dev/null
        expect "$schedule, tied=$tied: numpy's losses" near "$(near 6 "$room/losses")"
    done
done
expect "which fall" true "$(awk 'NR == 1 { first = $1 } END { print ($1 < first - 0.1 ? "true" : first " " $1) }' "$room/must")"

# ---- bytes: frozen ones stay, the others are in checkpoints ----
trained() { # STEPS ARGS...: saves a checkpoint, and exports its weights under their names
    rm -rf "$room/saved" "$room/hf"
    run schedules/zbv.lua "${model[@]}" "${text[@]}" --steps "$@" --checkpoint "$room/saved" >/dev/null
    "$PIANOLA" export-weights "$room/saved" --names hf --model "$room/lora.lua" -o "$room/hf" >/dev/null 2>&1
}
trained 3
expect "only adapters change" "down.0.weight down.1.weight down.2.weight down.3.weight last.gain up.0.weight up.1.weight up.2.weight up.3.weight" \
    "$(/usr/bin/python3 $here/lora.py same "$room/lora.safetensors" "$room/hf/model.safetensors")"
"$PIANOLA" export-weights "$room/saved" -o "$room/all.safetensors" >/dev/null
expect "and only they are in a checkpoint" "8 weight 1 gain" "$(/usr/bin/python3 -c 'import sys; sys.path.insert(0, "tests/training/labels")
from labels import load; print(*sorted(n.split(".")[2] for n in load(sys.argv[1])))' "$room/all.safetensors" | xargs -n 1 | sort | uniq -c | sort -rn | xargs)"
expect "and count" 264 "$("$PIANOLA" check schedules/serial.lua -D stages=1 "${model[@]}" | grep -o '[0-9]* parameters' | cut -d' ' -f1)"
trained 1 # the first step has the gradients of a training without frozen layers
cp "$room/hf/model.safetensors" "$room/one.safetensors"
run schedules/1f1b.lua "${model[@]}" -D frozen=false --data "$room/text.bin" --weights "$room/lora.safetensors" --steps 1 --checkpoint "$room/warm" >/dev/null
"$PIANOLA" export-weights "$room/warm" --names hf --model "$room/lora.lua" -D frozen=false -o "$room/warm-hf" >/dev/null 2>&1
expect "the gradients equal the gradients of a training without frozen layers" same \
    "$(/usr/bin/python3 $here/lora.py same "$room/one.safetensors" "$room/warm-hf/model.safetensors" down up last)"
expect "whose other weights change" middle.0.bias \
    "$(/usr/bin/python3 $here/lora.py same "$room/one.safetensors" "$room/warm-hf/model.safetensors" middle.0.b)"
steps() { run schedules/1f1b.lua "${model[@]}" "${text[@]}" --steps "$@" | field weights; }
whole=$(steps 4)
steps 2 --checkpoint "$room/half" --every 2 >/dev/null
expect "a resumed training has the bits of a whole one" "$whole" "$(run schedules/1f1b.lua "${model[@]}" --data "$room/text.bin" --steps 4 \
    --checkpoint "$room/half" --resume | field weights)"
expect "weights of all layers" "$whole" "$(run schedules/1f1b.lua "${model[@]}" --data "$room/text.bin" --weights "$room/lora.safetensors" --steps 4 | field weights)"
expect "weights of the adapters alone" "$whole" "$(run schedules/1f1b.lua "${model[@]}" --data "$room/text.bin" --weights "$room/adapters.safetensors" \
    --steps 4 | field weights)"

# ---- stages of frozen layers alone ----
peak() { sed -nE 's/.*"at_peak": \{ "weights": ([0-9]+), "gradients": ([0-9]+), "optimizer": ([0-9]+),.*/\1 \2 \3/p' | paste -sd,; }
expect "they have no weights, gradients and optimizer state" "0 0 0,512 512 0,576 576 0,0 0 0" \
    "$("$PIANOLA" show schedules/1f1b.lua "${model[@]}" -D alone=true --json | peak)"
jobs_of() { "$PIANOLA" show "$@" --format tsv | awk -F'\t' -v OFS='' '$5 ~ /^[FIBW]$/ { print $6, $5, $7 }' | sort | paste -sd' '; }
expect "and no W, and their I is a whole B" "0B0 0F0 1F0 1I0 1W0 2F0 2I0 2W0 3B0 3F0" \
    "$(jobs_of schedules/zb_h1.lua "${model[@]}" -D alone=true -D batches=1)"
stash() { "$PIANOLA" show schedules/serial.lua -D stages=1 "${model[@]}" "$@" --json | sed -nE 's/.*"stash": ([0-9]+).*/\1/p' | head -1; }
expect "frozen linear layers keep no input: stashes" "less" "$(awk -v a="$(stash)" -v b="$(stash -D frozen=false)" 'BEGIN { print (a > 0 && a < b ? "less" : a " " b) }')"
flop_of_b() { "$PIANOLA" show schedules/serial.lua -D stages=1 -D batches=1 --model "$room/integers.lua" -D frozen="$1" --format tsv |
    awk -F'\t' '$5 == "B" { print $4 - $3 }'; }
# A product of 2 rows and 8 x 8 weights is 256 FLOP. Three weight gradients fall away. As the first linear layer is one of
# the three, so do the input gradients of the relu after it, 16 values, and of the second linear layer.
expect "and nobody computes their weight gradients" "$((3 * 256 + 256 + 16))" "$(($(flop_of_b false) - $(flop_of_b true)))"

# ---- check-unit ----
gradients() {
    "$PIANOLA" check-unit "$@" --json | python3 -c 'import json, sys
got = json.load(sys.stdin)
print("agree" if got["agree"] else "differ", *(g["name"] for item in got["items"] for g in item["gradients"]))'
}
for tied in false true; do
    expect "tied=$tied: layers' gradients, none of them of a frozen parameter" "agree x 3.weight 4.weight x x 25.gain x x" \
        "$(gradients "$room/lora.lua" -D tied=$tied)"
done
expect "frozen layers and trained ones of the same sizes are two checks" "agree x x 2.weight x" "$(gradients "$room/integers.lua")"

# ---- ranks as processes, and on a GPU ----
compiled integers zbv --model "$room/integers.lua" >/dev/null
tcp integers 4 --steps 4 --json
wait "${pid[@]}"
expect "ranks over TCP: the bits of run" "$(run schedules/zbv.lua --model "$room/integers.lua" --steps 4 | field weights)" "$(field weights <"$room/out0")"
if [ -f build/standin/libpianola-cuda.so ]; then
    for tied in false true; do
        gpu=(schedules/1f1b.lua "${model[@]}" -D tied=$tied -D unit=false --data "$room/text.bin" --steps 2)
        run "${gpu[@]}" --losses "$room/losses" >/dev/null
        cut -f3 "$room/losses" | tail -n +2 >"$room/must"
        expect "a GPU, tied=$tied: one rank's weights" true "$(PIANOLA_CUDA=build/standin/libpianola-cuda.so run "${gpu[@]}" --device cuda --compare \
            --losses "$room/losses" | field one_rank_same_weights)"
        expect "and the CPU's losses" near "$(near 2 "$room/losses")"
    done
fi

# ---- mistakes ----
says() { timeout 60 "$PIANOLA" run schedules/1f1b.lua "${model[@]}" "$@" --steps 1 2>&1 | grep error: | sed "s,$room/,,g"; }
expect "a parameter that the file lacks" "pianola: error: lacks.safetensors: has no tensor middle.2.bias, which layer 18 needs" "$(says -D data=lacks.safetensors)"
expect "one of another shape" "pianola: error: shape.safetensors: tensor norm.1.weight is 9, but gamma of layer 8 is 8" "$(says -D data=shape.safetensors)"
expect "other values than in --weights" "pianola: error: tied.safetensors: tensor middle.1.weight differs from the one in thawed.safetensors, where layer 12 has its \
frozen parameters; name this file there as 'data', or take it off 'frozen'" "$(says "${text[@]}" -D data=thawed.safetensors)"
expect "bf16" "lora.lua:11: error: frozen layers compute in fp32: leave out the model's precision = \"bf16\"" "$(says -D precision=bf16 | head -1)"
expect "a team" "pianola: error: layer 1 (embedding): it is frozen, and a team of 2 ranks computes its stage, which cannot divide frozen layers yet; give its \
stage to one rank, with a cut before and after it, or train the layer" "$(says -D tensor=2)"

finish
