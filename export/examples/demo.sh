#!/usr/bin/env bash
# `make demo-torch`: a GPT in 30 lines of PyTorch is exported, trained by four ranks under two schedules, which give the
# same bits, and loaded back into PyTorch, whose loss is Pianola's.
#
#   export/examples/demo.sh PYTHON TEXT ROOM    # with STEPS=100
set -euo pipefail
python=$1 text=$2 room=$3 steps=${STEPS:-100} pianola=build/pianola
here=$(dirname "$0")
export PYTHONPATH=$here/.. PYTHONWARNINGS=ignore
say() { printf '\n== %s\n' "$*"; }
mkdir -p "$room"

say "$here/small_gpt.py: PyTorch compiles each distinct layer once"
"$python" "$here/small_gpt.py" "$room/model" 2>&1 | grep -v 'No CUDA runtime'

train() { # SCHEDULE
    say "$1 on four ranks"
    rm -rf "$room/$1"
    "$pianola" run "schedules/$1.lua" --model "$room/model/model.lua" --weights "$room/model/model.safetensors" \
        --data "$text" --steps "$steps" --checkpoint "$room/$1" 2>/dev/null | grep -E '^(loss|weights) '
}
train 1f1b
train zbv

say "back into PyTorch, by load_state_dict"
rm -rf "$room/trained"
"$pianola" export-weights "$room/zbv" --names hf --model "$room/model/model.lua" -o "$room/trained"
"$pianola" run schedules/serial.lua --model "$room/model/model.lua" --weights "$room/trained/model.safetensors" \
    --data "$text" --steps 0 --json 2>/dev/null >"$room/loss.json"
"$python" "$here/load_back.py" "$room/trained/model.safetensors" "$text" "$room/loss.json"
