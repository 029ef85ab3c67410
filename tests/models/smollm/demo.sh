#!/usr/bin/env bash
# `make demo-smollm`: SmolLM2-135M-Instruct, a published language model, fine-tuned on a dictionary by four ranks, each
# a process of its own, under two schedules and by one rank, which all give the same bits. Reports each step.
#
#   tests/models/smollm/demo.sh MODEL.gguf TEXT ROOM    # with STEPS=24
set -euo pipefail
model=$1 text=$2 room=$3 steps=${STEPS:-24}
pianola=build/pianola
# A tenth of the text is held out.
script=(--model schedules/models/llama.lua -D size=SmolLM2-135M -D lr=1e-4 -D rows=1 -D context=128)
export PKG_CONFIG_PATH=$PWD/build:${PKG_CONFIG_PATH-}
say() { printf '\n== %s\n' "$*"; }
began=$SECONDS

say "SmolLM2-135M-Instruct, and The Devil's Dictionary (Bierce 1911), of which the last tenth is held out"
lines=$(wc -l <"$text")
head -n $((lines * 9 / 10)) "$text" >"$room/train.txt"
tail -n +$((lines * 9 / 10 + 1)) "$text" >"$room/test.txt"
for part in train test; do
    "$pianola" tokenize "$room/$part.txt" --tokenizer "$model" -o "$room/$part.bin"
done

loss() { # WEIGHTS: prints the loss on the held-out text
    "$pianola" run schedules/serial.lua -D batches=8 -D rows=1 -D context=128 --weights "$1" --data "$room/test.bin" --steps 0 --json \
        2>/dev/null | sed -n 's/^  "loss": //p'
}
answer() { # WEIGHTS
    "$pianola" generate --weights "$1" --tokenizer "$model" --prompt "$prompt" --tokens 60 --temperature 0.7 --seed 3 2>/dev/null
}
prompt=$'LOVE, n.  A'
say "before: loss $(loss "$model") on the text held out; and it writes on from '$prompt'"
printf '%s%s\n' "$prompt" "$(answer "$model")"

# train NAME SCHEDULE RANKS: trains with a process for each rank, and prints the weights' fingerprint
train() {
    "$pianola" compile "schedules/$2.lua" -D batches=4 "${script[@]}" "${@:4}" -D workers="$3" -o "$room/$1" && make -s -C "$room/$1"
    local k pids=() before=$SECONDS
    for ((k = 0; k < $3; k++)); do
        "$room/$1/rank$k" --rank $k --world-size "$3" --master-addr 127.0.0.1 --master-port $((29700 + $3)) \
            --weights "$model" --data "$room/train.bin" --steps "$steps" --checkpoint "$room/$1.saved" --keep 1 \
            >"$room/$1.out$k" 2>"$room/$1.err$k" &
        pids+=($!)
    done
    for k in "${!pids[@]}"; do
        wait "${pids[k]}" || { cat "$room/$1.err$k" >&2; exit 1; }
    done
    echo "$2 on $3 rank$([ "$3" = 1 ] || echo s): $((SECONDS - before)) s; weights $(sed -n 's/^weights *\([0-9a-f]*\).*/\1/p' "$room/$1.out0")"
}
say "$steps steps of $((4 * 128)) tokens"
rm -rf "$room"/*.saved
train zbv zbv 4 | tee "$room/bits"
train 1f1b 1f1b 4 | tee -a "$room/bits"
train serial serial 1 -D stages=8 | tee -a "$room/bits"
[ "$(sed 's/.*weights //' "$room/bits" | sort -u | wc -l)" = 1 ] || { echo "the weights differ" >&2; exit 1; }
echo "the same weights, bit for bit"

"$pianola" export-weights "$room/zbv.saved" --names hf "${script[@]}" -o "$room/hf"
after=$(loss "$room/hf/model.safetensors")
say "after: loss $after on the text held out; and it writes on from '$prompt'"
printf '%s%s\n' "$prompt" "$(answer "$room/hf/model.safetensors")"
say "$((SECONDS - began)) s; the model is in $room/hf, as transformers load it; on with it:"
echo "$pianola generate --weights $room/hf/model.safetensors --tokenizer $model --prompt 'MARRIAGE, n.'"
