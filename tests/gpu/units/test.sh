#!/usr/bin/env bash
# Units that call PyTorch's functions, on GPUs: a hand-written one, whose kernels are PTX, on the stand-in. It trains to
# the losses of the same unit on CPUs, in a captured graph, and what differs from its plan is an error.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
export PIANOLA_CUDA=$PWD/build/standin/libpianola-cuda.so NVCC="$PWD/tests/models/units/nvcc.sh"
[ -f "$PIANOLA_CUDA" ] || { echo "$PIANOLA_CUDA is not there: make standin"; exit 1; }
room=$(mktemp -d) || exit 2
trap 'rm -rf "$room"' EXIT
export XDG_CACHE_HOME=$room/cache STANDIN_PTX=$PWD/tests/gpu/ptx/to_cpp.py
cp tests/gpu/units/scale.{c,cu,lua} "$room/"

# library FLAGS...: builds the unit's graphs
library() {
    g++ -std=c++17 -O1 -fPIC -shared -Iruntime -DKERNELS="\"$PWD/${PTX:-tests/gpu/units/kernels.ptx}\"" "$@" -o "$room/libscale.so" tests/gpu/units/scale.cpp
}
run() { timeout 300 "$PIANOLA" run "$@" --model "$room/scale.lua" --steps "${STEPS:-4}" --json 2>&1; }
gpu() { run "$@" --device cuda; }
error() { grep -o 'error: .*\|standin: .*'; }
near() { awk -v a="$1" -v b="$2" 'BEGIN { d = a / b - 1; print (a > 0 && d < 1e-5 && d > -1e-5 ? "near" : a " " b) }'; }
two=(schedules/1f1b.lua -D workers=2)

# The functions that graphs import, against the host's.
# shellcheck disable=SC2046
g++ -x c++ -std=c++17 -O1 -g -Wall -Wextra -Werror -Itests/gpu/standin -Iruntime tests/gpu/units/functions.cpp -x none -o "$room/functions" \
    build/standin/libpianola-cuda.so build/libpianola.a -Wl,-rpath,"$PWD/build/standin" $(pkg-config --libs $BLAS lua5.4) -lm -pthread || exit 1
OPENBLAS_NUM_THREADS=1 timeout 100 "$room/functions"
expect "the functions that graphs import" 0 $?

library
expect "the graphs are built" 0 $?
graph=$(STANDIN_LAUNCHES=$room/launches gpu "${two[@]}" --compare)
expect "one rank's weights" true "$(field one_rank_same_weights <<<"$graph")"
expect "the host's losses" near "$(near "$(field loss_last <<<"$graph")" "$(run "${two[@]}" -D gpu=false | field loss_last)")"
expect "the weights of eager steps" "$(field weights <<<"$graph")" "$(gpu "${two[@]}" --no-graph | field weights)"
expect "zero-bubble schedules" true "$(gpu schedules/zbv.lua -D workers=2 --compare | field one_rank_same_weights)"
expect "memory as planned" "0" "$(grep -E 'device_bytes_(planned|taken)' <<<"$graph" | grep -oE '[0-9]+' | paste -sd- | bc)"

# Kernels are loaded and launched in the trial, in the first step, and in the second, which is captured.
launches=$(grep -c . "$room/launches")
rm "$room/launches"
STEPS=9 STANDIN_LAUNCHES=$room/launches gpu "${two[@]}" --compare >/dev/null
expect "later steps replay the graph" "$launches" "$(grep -c . "$room/launches")"
expect "launches: names, blocks, threads" "scale_rows	3 1 1	64 sum_column	22 1 1	64" "$(cut -f 1-3 "$room/launches" | sort -u | paste -sd' ')"
expect "launches are on the job's streams" yes "$(cut -f 4 "$room/launches" | grep -c legacy | awk '{ print ($1 == 0 ? "yes" : $1) }')"

# Units that differ from the plan, or whose kernels cannot be loaded.
library -DWRONG_BYTES
expect "an allocation of another size" "error: unit function scale_forward: allocation 0 is 792 bytes, and was 704 when the model was exported; export it again" \
    "$(gpu "${two[@]}" | error)"
sed 's/scale_rows/other_rows/g' tests/gpu/units/kernels.ptx >"$room/other.ptx"
PTX=$(realpath --relative-to=. "$room/other.ptx") library
expect "a kernel that is not there" "error: unit function scale_forward: kernel scale_rows of unit 'scale', compiled for sm_80, cannot be loaded on stand-in for a GPU, of compute capability 9.0: error 500 of the driver; export the model again on a machine with this GPU" \
    "$(gpu "${two[@]}" | error)"
sed 's/mul.rn.f32\|mul.f32/mul.unknown.f32/' tests/gpu/units/kernels.ptx >"$room/other.ptx"
PTX=$(realpath --relative-to=. "$room/other.ptx") library
expect "PTX that the stand-in does not know" 1 "$( (ulimit -c 0; gpu "${two[@]}") 2>/dev/null | grep -c 'unknown instruction: mul.unknown.f32')"
finish
