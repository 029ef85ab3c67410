#!/usr/bin/env bash
# Checks the CUDA runtime without a GPU: its sources, compiled as C++ against tests/gpu/standin/, run through the real
# command. Device memory, faults, timelines, algorithms of products, cuDNN. If nvcc is installed, all sources compile for
# the supported GPUs, and registers and spills are printed. The matrix (tests/training/matrix) compares schedules and
# features with the host.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
. tests/support/timelines.sh
export PIANOLA_CUDA=$PWD/build/standin/libpianola-cuda.so
[ -f "$PIANOLA_CUDA" ] || { echo "$PIANOLA_CUDA is not there: make standin"; exit 1; }
integers="--model schedules/models/integers.lua --steps 4"
text="--model schedules/models/gpt.lua -D layers=2 -D width=32 -D context=16 -D rows=2 --data /usr/share/common-licenses/GPL-3"

# Fields of `run --json`: weights FLAGS..., loss FLAGS...
weights() { timeout 200 "$PIANOLA" run "$@" --json 2>&1 | sed -nE 's/^  "weights": "(.*)",?$/\1/p;/^standin|error:/p'; }
loss() { timeout 200 "$PIANOLA" run "$@" --json 2>&1 | sed -nE 's/^  "loss_last": ([0-9.]*).*/\1/p;/^standin|error:/p' ; }

# bf16 rounds, and where it is exact, the fp32 masters equal the host's weights.
# shellcheck disable=SC2086
half=$(weights schedules/serial.lua $integers -D precision=bf16 --device cuda)
# shellcheck disable=SC2086
expect "bf16 rounds: other weights than fp32" yes \
    "$([ "$half" != "$(weights schedules/serial.lua $integers)" ] && [ ${#half} = 16 ] && echo yes)"
exact="schedules/1f1b.lua --model schedules/models/integers.lua -D layers=4 --steps 1" # no number has more than 8 significant bits
# shellcheck disable=SC2086
expect "bf16 where it is exact: masters equal the host's weights" "$(weights $exact)" "$(weights $exact -D precision=bf16 --device cuda)"
# shellcheck disable=SC2086
expect "bf16: device memory as planned" yes "$("$PIANOLA" run $exact -D precision=bf16 --device cuda 2>&1 |
    sed -nE 's/.*planned ([0-9]+) bytes, taken ([0-9]+), at the end ([0-9]+);.*/\1 \2 \3/p' | awk '$1 == $2 && $1 == $3 && $1 > 0 { print "yes" }')"
# Later steps, which replay the graph.
# shellcheck disable=SC2086
{
    memory() { "$PIANOLA" run schedules/1f1b.lua $integers --device cuda --json "$@" 2>/dev/null |
        sed -nE 's/^  "device_bytes_(planned|taken|at_end)": ([0-9]+),$/\2/p' | paste -sd' ' | awk '{ print $2 - $1, $3 - $1 }'; }
    expect "device memory at the end: as planned" "0 0" "$(memory)"
    expect "device memory at the end: with a graph's memory" "0 4096" "$(STANDIN_GRAPH_BYTES=4096 memory)"
    expect "device memory at the end: no graph" "0 0" "$(STANDIN_GRAPH_BYTES=4096 memory --no-graph)"
}
expect "bf16 on the host" 'pianola: error: schedules/models/gpt.lua: precision = "bf16" runs on GPUs only; train with --device cuda, or set precision = "fp32"' \
    "$("$PIANOLA" run schedules/serial.lua --model schedules/models/gpt.lua -D precision=bf16 2>&1)"
expect "heads too wide for CUDA" 'pianola: error: layer 7 (attention): its heads have 160 columns; --device cuda takes at most 128: use at least heads = 5' \
    "$("$PIANOLA" run schedules/1f1b.lua --model tests/papers/formulas/wide_heads.lua --device cuda 2>&1)"
expect "a kernel that cannot be launched" 'pianola: error: CUDA: launch of count: cudaErrorNoKernelImageForDevice: no kernel image is available for execution on the device' \
    "$(STANDIN_REFUSED=count "$PIANOLA" run schedules/1f1b.lua --model schedules/models/integers.lua --steps 3 --device cuda 2>&1 | tail -n 1)"
# A kernel's fault surfaces at a later call, so the named instruction may be innocent, unless launches block.
# shellcheck disable=SC2086
{
    illegal='cudaErrorIllegalAddress: an illegal memory access was encountered'
    find='. An earlier instruction may be at fault: to see which, run with --no-graph and with CUDA_LAUNCH_BLOCKING=1 in the environment, then under compute-sanitizer'
    faulty() { STANDIN_FAULT='(mse<T>)' STANDIN_FAULT_AT=9 "$PIANOLA" run schedules/1f1b.lua $integers --device cuda "$@" 2>&1 | grep error; }
    expect "a fault in a graph" "pianola: error: CUDA: CALL: $illegal$find" "$(STANDIN_FAULT_LATER=2 faulty | sed -E 's/: [A-Za-z]+\(.*\): cudaE/: CALL: cudaE/')"
    expect "a fault that surfaces at another instruction" \
        "pianola: error: CUDA: cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream): $illegal, while enqueuing rank 0, step 2: 0F1$find" \
        "$(STANDIN_SEED=0 STANDIN_FAULT_LATER=8 faulty --no-graph)"
    expect "a fault where launches block" \
        "pianola: error: CUDA: launch of (mse<T>): $illegal, in rank 3, step 2: 3F0; to see where in it, run this under compute-sanitizer" \
        "$(CUDA_LAUNCH_BLOCKING=1 faulty --no-graph)"
}
# A weight gradient's product also sums the bias gradient. Where cuBLASLt has no algorithm for that, a kernel sums it.
# shellcheck disable=SC2086
{
    kernel="(bias_gradient<T, WIDE<T>>)"
    biased="schedules/1f1b.lua $text -D workers=2 --steps 3 --device cuda"
    expect "bias gradients by cuBLASLt: no kernel" "$(loss $biased)" "$(STANDIN_REFUSED=$kernel loss $biased)"
    expect "bias gradients by a kernel: it is launched" \
        "pianola: error: CUDA: launch of $kernel: cudaErrorNoKernelImageForDevice: no kernel image is available for execution on the device (rank 1, step 1: 1B0)" \
        "$(STANDIN_LT_FAILS=result:15:256 STANDIN_REFUSED=$kernel loss $biased)"
    expect "bias gradients by a kernel: the loss within 1e-5" yes "$(STANDIN_LT_FAILS=result:15:256 loss $biased |
        awk -v a="$(loss $biased)" '{ d = a - $1; print (a > 0 && d * d < 1e-10 * a * a) ? "yes" : "no" }')"
}
archs=$(sed -nE "s/^ARCHS := .*code=\[([^]]*)\].*/\1/p" Makefile)
expect "a GPU that is too old" "1 ${archs//,/ }" \
    "$(STANDIN_CAPABILITY=75 "$PIANOLA" run schedules/1f1b.lua --model schedules/models/integers.lua --steps 3 --device cuda 2>&1 |
        grep -c 'stand-in for a GPU has compute capability 7.5: Pianola is compiled for ') $(strings build/standin/device/device_cuda.o |
        sed -n 's/.*is compiled for //p' | grep -oE '(sm|compute)_[0-9]+' | paste -sd' ')"
# Measured timelines of captured steps, of eager steps, and of a first step. Measuring does not change any result.
room=$(mktemp -d) || exit 2
trap 'rm -rf "$room"' EXIT
timed="schedules/lpp.lua -D workers=4 -D stages=4 -D batches=4 -D group=2 --model schedules/models/integers.lua"
# shellcheck disable=SC2086
"$PIANOLA" show $timed --format tsv >"$room/program"
# shellcheck disable=SC2086
for how in "13:--steps 13:4 5 6 7 8 9 10 11 12 13" "3:--steps 3:2 3" "3:--steps 3 --no-graph:2 3" "2:--steps 2:2" "1:--steps 1:1"; do
    IFS=: read -r n flags steps <<<"$how"
    expect "timeline, $flags: weights" "$(weights $timed --steps "$n")" \
        "$(weights $timed $flags --device cuda --timeline "$room/timeline")"
    check_timeline "timeline, $flags" "$room/program" "$steps" 0 "$room/timeline"
done

# Product algorithms chosen by time and kept in a file. The stand-in's three algorithms per product sum in different
# orders, and STANDIN_FASTEST names the one that takes no time. So timing would choose another, but the file fixes one.
# Products with an epilogue always win here, since kernels take a second; tests/gpu/epilogues covers both outcomes.
export STANDIN_SLOW=plain
timed="schedules/1f1b.lua $text -D workers=2 --steps 3 --device cuda"
kept=$room/algorithms
# shellcheck disable=SC2086
{
    first=$(weights $timed)
    chosen=$(STANDIN_FASTEST=2 weights $timed --algorithms "$kept")
    expect "algorithms timed: other weights than the heuristic's first" yes "$([ ${#chosen} = 16 ] && [ "$chosen" != "$first" ] && echo yes)"
    cp "$kept" "$room/before"
    expect "algorithms from the file, whatever is faster now" "$chosen" "$(STANDIN_FASTEST=1 weights $timed --algorithms "$kept")"
    expect "algorithms from the file, without a graph" "$chosen" "$(weights $timed --algorithms "$kept" --no-graph)"
    expect "a complete file stays unchanged" "" "$(cmp "$room/before" "$kept" 2>&1)"
    # Keeps lines for another device or version and for products that do not occur here; a missing line is timed again.
    { head -n 1 "$kept"; sed 1d "$kept" | sed 's/^stand-in for a GPU/another GPU/'; sed 1d "$kept" | sed 's/\t130100\t/\t120900\t/'; } >"$room/foreign"
    cp "$room/foreign" "$room/both"
    other=$(STANDIN_FASTEST=1 weights $timed --algorithms "$room/both")
    expect "algorithms for other devices: this device's are timed" yes "$([ ${#other} = 16 ] && [ "$other" != "$chosen" ] && [ "$other" != "$first" ] && echo yes)"
    expect "algorithms for other devices are kept, with this device's after them" "yes $(($(wc -l <"$kept") - 1))" \
        "$(head -n "$(wc -l <"$room/foreign")" "$room/both" | cmp - "$room/foreign" && echo yes) $(sed "1,$(wc -l <"$room/foreign")d" "$room/both" | grep -c '^stand-in for a GPU	130100	')"
    sed 5d "$kept" >"$room/less"
    expect "one algorithm is missing: the others stay" "$(sed 5d "$kept" | sort | uniq -c)" \
        "$(STANDIN_FASTEST=1 weights $timed --algorithms "$room/less" >/dev/null; sed '$d' "$room/less" | sort | uniq -c)"
    expect "one algorithm is missing: it is timed again" "$(sed -n 5p "$kept" | cut -f 3)" "$(tail -n 1 "$room/less" | cut -f 3)"
    rm "$kept"
    expect "without the file all are timed again" "$other" "$(STANDIN_FASTEST=1 weights $timed --algorithms "$kept")"
    # If a product takes longer than two steps, its line says so, and the second step's kernel is launched.
    sed -E '/epilogue 256\t/s/[^\t]*$/apart/' "$kept" >"$room/apart"
    expect "a separate bias gradient: its kernel is launched" "pianola: error: CUDA: launch of $kernel: cudaErrorNoKernelImageForDevice: no kernel image is available for execution on the device (rank 1, step 1: 1B0)" \
        "$(STANDIN_REFUSED=$kernel weights $timed --algorithms "$room/apart")"
    # Errors in a file.
    trouble() { "$PIANOLA" run $timed --algorithms "$1" 2>&1 >/dev/null | grep error; }
    sed '4s/.$/x/' "$kept" >"$room/corrupt"
    expect "a corrupt line" "pianola: error: $room/corrupt:4: the algorithm is not 128 hexadecimal digits; fix the file, or remove it to time all algorithms again" "$(trouble "$room/corrupt")"
    head -c -9 "$kept" >"$room/cut"
    expect "a line cut off" "pianola: error: $room/cut:$(wc -l <"$kept"): the line is cut off; fix the file, or remove it to time all algorithms again" "$(trouble "$room/cut")"
    sed "3s/[0-9a-f]*$/$(sed -n 4p "$kept" | cut -f 4)/" "$kept" >"$room/others"
    expect "an algorithm of another product" "pianola: $room/others:3: cuBLASLt refuses this algorithm: CUBLAS_STATUS_INVALID_VALUE; the heuristic's first is used instead. Remove such lines to time their products anew, or run without --algorithms" \
        "$("$PIANOLA" run $timed --algorithms "$room/others" 2>&1 >/dev/null | grep cuBLASLt)"
    expect "a file that cannot be written" "pianola: error: $room/none/of: No such file or directory" "$(trouble "$room/none/of" | sed 's/\.tmp//')"
    expect "no memory for timing" yes "$(STANDIN_MEMORY=1000000 trouble "$room/new" | grep -q ': there is no device memory to time products$' && echo yes)"
}
unset STANDIN_SLOW
expect "algorithms on the host" "pianola: error: --algorithms needs a GPU: train with --device cuda" \
    "$("$PIANOLA" run schedules/serial.lua --model schedules/models/integers.lua --algorithms "$room/new" 2>&1)"

expect "no such device" "pianola: error: --device gpu: expected host or cuda" \
    "$("$PIANOLA" run schedules/serial.lua --model schedules/models/integers.lua --device gpu 2>&1)"
expect "no library" yes "$(PIANOLA_CUDA=/none "$PIANOLA" run schedules/serial.lua --model schedules/models/integers.lua \
    --device cuda 2>&1 | grep -q '^pianola: error: --device cuda needs its own library: ' && echo yes)"

# Presents an H200 to cuDNN, if installed, and asks for plans. cuDNN must recognise the graphs and give their
# workspaces.
cuda=${CUDA_HOME:-/usr/local/cuda}
if [ -f "$cuda/include/cudnn.h" ]; then
    room=build/cudnn
    mkdir -p "$room/fake"
    gcc -std=c11 -shared -fPIC tests/gpu/kernels/no_driver.c -o "$room/libcuda.so.1" &&
        g++ -std=c++17 -g -Wall -Wextra -Werror -Iruntime -I"$cuda/include" tests/gpu/kernels/cudnn.cpp -o "$room/cudnn" -ldl &&
        LD_LIBRARY_PATH="$PWD/$room:$cuda/lib64" timeout 200 "$room/cudnn"
    expect "cuDNN plans attention for an H200" 0 $?

    # The runtime with a stand-in for cuDNN that computes on the host. 24 KiB of scores: one or two sequences per call.
    flags="-std=c++17 -O1 -g -Wall -Wextra -Werror -Itests/gpu/standin -Iruntime -idirafter $cuda/include"
    # shellcheck disable=SC2046,SC2086
    g++ $flags -shared -fPIC tests/gpu/kernels/fake_cudnn.cpp -o "$room/fake/libcudnn.so.9" &&
        g++ $flags -DSQUARES=49152 -x c++ runtime/layers/attention_cudnn.cu tests/gpu/kernels/cudnn_run.cpp -x none -o "$room/run" \
            "$PWD/build/standin/libpianola-cuda.so" build/libpianola.a -Wl,-rpath,"$PWD/build/standin" -rdynamic -Wl,-u,host_forward_part \
            $(pkg-config --libs $BLAS lua5.4) -lm -ldl -pthread &&
        OPENBLAS_NUM_THREADS=1 LD_LIBRARY_PATH="$PWD/$room/fake" timeout 200 "$room/run"
    expect "attention by a cuDNN that computes on the host, or fails" 0 $?
fi

nvcc=${NVCC:-${CUDA_HOME:-/usr/local/cuda}/bin/nvcc}
if [ -x "$nvcc" ] && make -s -j"$(nproc)" gpu; then
    cat build/cuda/*/*.log | awk '
        /spill stores/ { n++; spilled += $0 !~ / 0 bytes spill stores, 0 bytes spill loads/ }
        /Used [0-9]+ registers/ { sub(/.*Used /, ""); most = $1 > most ? $1 : most; sum += $1 }
        END { printf "nvcc: %d kernels for sm_80, sm_90 and sm_100, %d registers on average, at most %d; %d spill\n", n, sum / n, most, spilled }'
    expect "kernels that spill registers" 0 "$(cat build/cuda/*/*.log | grep 'spill stores' | grep -vc ' 0 bytes spill stores, 0 bytes spill loads')"
    expect "nvcc's library exports cuda_train" yes \
        "$(nm -D build/libpianola-cuda.so | grep -q ' T cuda_train$' && echo yes)"
elif [ -x "$nvcc" ]; then
    expect "nvcc compiles and links the CUDA half" yes no
else
    echo "nvcc is not here: the CUDA half was compiled as C++ only"
fi
finish
