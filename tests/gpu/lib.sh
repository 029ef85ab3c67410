# For check.sh and bench.sh: . tests/gpu/lib.sh DIR. Finds programs and CUDA's libraries, prints the device, and keeps
# the output: in tests/gpu/results/ (or RESULTS), dated, on a GPU; nowhere on the stand-in.
DIR=${1:-build/gpu-check}
case $DIR in *standin*) standin=yes ;; *) standin= ;; esac
PIANOLA=$DIR/pianola
export PIANOLA_CUDA=$PWD/$DIR/libpianola-cuda.so
if [ ! -x "$PIANOLA" ] || [ ! -e "$PIANOLA_CUDA" ]; then
    echo "$DIR holds no programs: make gpu-check-build, where gcc, nvcc, Lua and OpenBLAS are, and bring build/gpu-check" >&2
    exit 2
fi
CUDA_HOME=${CUDA_HOME:-/usr/local/cuda}
PATH=$PATH:$CUDA_HOME/bin:$CUDA_HOME/compute-sanitizer
room=$(mktemp -d) || exit 2
trap 'rm -rf "$room"' EXIT

# Libraries that the loader does not find by itself, from the toolkit or wherever they are: those that ldd misses, and
# cuDNN, which the runtime opens by name.
missing() {
    ldd "$PIANOLA_CUDA" "$DIR/nccl" 2>/dev/null | awk '/not found/ { print $1 }' | sort -u
    ldconfig -p 2>/dev/null | grep -q 'libcudnn\.so\.9 ' || echo libcudnn.so.9
}
[ "$standin" ] || for library in $(missing); do
    at=$(ls "$CUDA_HOME"/lib64/"$library" "$CUDA_HOME"/lib/"$library" 2>/dev/null | head -n 1)
    at=${at:-$(find / -xdev -name "$library" -not -path '/proc/*' 2>/dev/null | head -n 1)}
    [ -n "$at" ] && export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}${at%/*}
done

# Sets PEAK_TFLOPS and MEMORY_TBS, unless they are set, for DEVICE (by default the one here) and PRECISION, and LIMITS,
# where they come from. Unknown: PEAK_TFLOPS 0, and MEMORY_TBS empty: layer_times.cu asks the device.
limits() { # PRECISION
    local row column=3
    [ "$1" != bf16 ] || column=2
    DEVICE=${DEVICE:-$([ "$standin" ] && echo "NVIDIA H100 80GB HBM3" ||
        nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1)}
    row=$(grep "^$DEVICE"$'\t' tests/gpu/devices.tsv)
    LIMITS="of $DEVICE by its datasheet, dense $1"
    [ "$row" ] || LIMITS="of ${DEVICE:-a device without a name}, which is not in tests/gpu/devices.tsv: memory by its clock and bus"
    [ -z "${PEAK_TFLOPS:-}${MEMORY_TBS:-}" ] || LIMITS="as PEAK_TFLOPS or MEMORY_TBS say, else $LIMITS"
    export PEAK_TFLOPS=${PEAK_TFLOPS:-$([ "$row" ] && echo "$row" | cut -f $column || echo 0)}
    export MEMORY_TBS=${MEMORY_TBS:-$(echo "$row" | cut -f 4)}
    [ "$MEMORY_TBS" ] || unset MEMORY_TBS
}

commit=$(cat "$DIR/commit" 2>/dev/null || git describe --always --dirty 2>/dev/null || echo unknown)
facts() {
    if [ "$standin" ]; then
        echo "device     the stand-in, on a CPU: says nothing of GPUs"
    else
        echo "device     $(nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader 2>&1 | head -n 1)"
        echo "toolkit    $( (nvcc --version || echo "no nvcc here") 2>/dev/null | tail -n 1)"
    fi
    echo "date       $(date -u '+%F %H:%M UTC')"
    echo "commit     $commit"
}

# Without a GPU there is nothing to report or keep.
if ! [ "$standin" ] && "$PIANOLA" run schedules/serial.lua --model schedules/models/integers.lua --steps 1 --json \
    --device cuda 2>&1 | grep '^pianola: error: no CUDA device' >&2; then
    exit 2
fi

# keep NAME: copies further output to the results.
keep() {
    [ "$standin" ] && return
    results=${RESULTS:-tests/gpu/results}
    mkdir -p "$results" || exit 2
    exec > >(tee "$results/$1-$(date -u +%F)-$commit.txt")
    trap 'exec >&-; wait; rm -rf "$room"' EXIT # tee ends after its last line
}

# field NAME: a figure from the JSON on stdin.
field() { sed -nE "s/^  \"$1\": \"?([^\",]*)\"?,?$/\1/p"; }

# The awk of bench.sh and roofline.sh. FLOPs per token as llm.c counts them (train_gpt2.cu, gpt2_estimate_mfu): 6 N + 6 L C T,
# attention by half as it is causal; PaLM's formula has 12 L C T. t: tokens of a sequence.
count_model='
    $1 ~ /^attention/ && $2 == "forward" { layers = $3; split($1, f, " "); width = f[6] }
    $2 == "update" { split($1, f, " "); n += f[3] }
    $2 == "step" { alone = $4 }
    /^# [0-9]/ { memory = $1; sub(/^# /, "", memory) }
    function token() { return 6 * n + 6 * layers * width * t }'
