#!/usr/bin/env bash
# The CUDA half on a machine without a GPU: its sources, compiled as C++ against tests/standin/, through the real command.
# Every schedule trains in loopback, one graph for the step, to the bits of the host; a graph and eager replay agree. And
# where nvcc is, all of it compiles for the GPUs it is meant for: registers and spills are printed.
cd "$(dirname "$0")/.." || exit 2
. tests/lib.sh
export PIANOLA_CUDA=$PWD/build/standin/libpianola-cuda.so
[ -f "$PIANOLA_CUDA" ] || { echo "$PIANOLA_CUDA is not there: make standin"; exit 1; }
integers="--model schedules/models/integers.lua --steps 4"
text="--model schedules/models/gpt.lua -D layers=2 -D width=32 -D context=16 -D rows=2 --data /usr/share/common-licenses/GPL-3"

# fields of `run --json`: weights FLAGS..., loss FLAGS...
weights() { timeout 200 "$PIANOLA" run "$@" --json 2>&1 | sed -nE 's/^  "weights": "(.*)",?$/\1/p;/^standin|error:/p'; }
loss() { timeout 200 "$PIANOLA" run "$@" --json 2>&1 | sed -nE 's/^  "loss_last": ([0-9.]*).*/\1/p;/^standin|error:/p' ; }

for schedule in schedules/*.lua; do
    # shellcheck disable=SC2086
    expect "$schedule in loopback: weights of the host" "$(weights "$schedule" $integers)" \
        "$(weights "$schedule" $integers --device cuda)"
done
# shellcheck disable=SC2086
expect "1f1b without a graph: weights of the host" "$(weights schedules/1f1b.lua $integers)" \
    "$(weights schedules/1f1b.lua $integers --device cuda --no-graph)"
for lanes in peer rank; do
    # shellcheck disable=SC2086
    expect "fslpp with a lane per $lanes: weights of the host" "$(weights schedules/fslpp.lua $integers)" \
        "$(weights schedules/fslpp.lua $integers --lanes $lanes --device cuda)"
done
for ((seed = 1, trained = 0; trained < 4 && seed < 50; seed++)); do # some deadlock by their cap
    "$PIANOLA" check tests/schedules/random.lua -D seed=$seed >/dev/null 2>&1 || continue
    trained=$((trained + 1))
    # shellcheck disable=SC2086
    expect "random schedule $seed in loopback" "$(weights tests/schedules/random.lua -D seed=$seed $integers)" \
        "$(weights tests/schedules/random.lua -D seed=$seed $integers --device cuda)"
done
# A transformer is not exact: its losses agree, and a graph agrees with eager replay bit for bit.
# shellcheck disable=SC2086
{
    host=$(loss schedules/1f1b.lua $text -D workers=2 --steps 3)
    cuda=$(loss schedules/1f1b.lua $text -D workers=2 --steps 3 --device cuda)
    expect "GPT in loopback: the host's loss within 1e-5 ($host, $cuda)" yes \
        "$(awk -v a="$host" -v b="$cuda" 'BEGIN { d = a - b; print (a > 0 && d * d < 1e-10 * a * a) ? "yes" : "no" }')"
    expect "GPT: graph and eager replay" "$(weights schedules/1f1b.lua $text -D workers=2 --steps 3 --device cuda)" \
        "$(weights schedules/1f1b.lua $text -D workers=2 --steps 3 --device cuda --no-graph)"
}
expect "no such device" "pianola: error: --device gpu: expected host or cuda" \
    "$("$PIANOLA" run schedules/serial.lua --model schedules/models/integers.lua --device gpu 2>&1)"
expect "no library" yes "$(PIANOLA_CUDA=/none "$PIANOLA" run schedules/serial.lua --model schedules/models/integers.lua \
    --device cuda 2>&1 | grep -q '^pianola: error: --device cuda needs its own library: ' && echo yes)"

nvcc=${NVCC:-${CUDA_HOME:-/usr/local/cuda}/bin/nvcc}
if [ -x "$nvcc" ] && make -s -j"$(nproc)" gpu; then
    cat build/cuda/*.log | awk '
        /spill stores/ { n++; spilled += $0 !~ / 0 bytes spill stores, 0 bytes spill loads/ }
        /Used [0-9]+ registers/ { sub(/.*Used /, ""); most = $1 > most ? $1 : most; sum += $1 }
        END { printf "nvcc: %d kernels for sm_80, sm_90 and sm_100, %d registers on average, at most %d; %d spill\n", n, sum / n, most, spilled }'
    expect "kernels that spill registers" 0 "$(cat build/cuda/*.log | grep 'spill stores' | grep -vc ' 0 bytes spill stores, 0 bytes spill loads')"
    expect "kernels compiled by nvcc are all there" yes \
        "$(nm -D build/libpianola-cuda.so | grep -q ' T cuda_train$' && echo yes)"
elif [ -x "$nvcc" ]; then
    expect "nvcc compiles and links the CUDA half" yes no
else
    echo "nvcc is not here: the CUDA half was compiled as C++ only"
fi
finish
