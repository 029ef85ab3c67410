# For the scripts in this folder: . tests/gpu/device/lib.sh DIR. Finds the programs in DIR and CUDA's libraries, names
# the device, and runs jobs in parallel. On a GPU it keeps the output in tests/gpu/device/results/ (or RESULTS), by date
# and time. It keeps nothing on the stand-in, or if RESULTS is empty.
DIR=${1:-build/gpu-check}
case $DIR in *standin*) standin=yes ;; *) standin= ;; esac
PIANOLA=$DIR/pianola
export PIANOLA_CUDA=$PWD/$DIR/libpianola-cuda.so
if [ ! -x "$PIANOLA" ] || [ ! -e "$PIANOLA_CUDA" ]; then
    echo "$DIR holds no programs: make gpu-check-build, where gcc, nvcc, Lua and OpenBLAS are, and bring build/gpu-check" >&2
    exit 2
fi
JOBS=${JOBS:-$(nproc)} # programs at once in untimed parts
room=$(mktemp -d) || exit 2
trap 'rm -rf "$room"' EXIT

# CUDA's libraries come from the toolkit, or from pip, as PyTorch's do. pip's come first, because PyTorch is compared
# with them.
CUDA_HOME=${CUDA_HOME:-/usr/local/cuda}
PATH=$PATH:$CUDA_HOME/bin:$CUDA_HOME/compute-sanitizer
pip_libraries() {
    python3 -c 'import glob, sysconfig
found = glob.glob(sysconfig.get_paths()["purelib"] + "/nvidia/*/lib")
print(":".join(sorted(found, key=lambda folder: ("/cu13/" not in folder, folder))))' 2>/dev/null
}
if [ ! "$standin" ] && [ ! "${CUDA_LIBRARIES:-}" ]; then # found once, also for scripts called from here
    pip=$(pip_libraries)
    export CUDA_LIBRARIES=${pip:+$pip:}$CUDA_HOME/lib64
    export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$CUDA_LIBRARIES
fi

# Sets PEAK_TFLOPS and MEMORY_TBS, unless set, for DEVICE (by default this one) and PRECISION, and LIMITS, their source.
# If unknown, PEAK_TFLOPS is 0 and MEMORY_TBS is empty: layer_times.cu then asks the device.
limits() { # PRECISION
    local row column=3
    [ "$1" != bf16 ] || column=2
    DEVICE=${DEVICE:-$([ "$standin" ] && echo "NVIDIA H100 80GB HBM3" ||
        nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1)}
    row=$(grep "^$DEVICE"$'\t' tests/gpu/device/devices.tsv)
    LIMITS="of $DEVICE by its datasheet, dense $1"
    [ "$row" ] || LIMITS="of ${DEVICE:-a device without a name}, which is not in tests/gpu/device/devices.tsv: memory by its clock and bus"
    [ -z "${PEAK_TFLOPS:-}${MEMORY_TBS:-}" ] || LIMITS="as PEAK_TFLOPS or MEMORY_TBS say, else $LIMITS"
    export PEAK_TFLOPS=${PEAK_TFLOPS:-$([ "$row" ] && echo "$row" | cut -f $column || echo 0)}
    export MEMORY_TBS=${MEMORY_TBS:-$(echo "$row" | cut -f 4)}
    [ "$MEMORY_TBS" ] || unset MEMORY_TBS
}

commit=$(cat "$DIR/commit" 2>/dev/null || git describe --always --dirty 2>/dev/null || echo unknown)
stamp=${STAMP:-$(date -u +%FT%H%M%SZ)} # part of the results' file names
facts() {
    if [ "$standin" ]; then
        echo "device     the stand-in, on a CPU: says nothing of GPUs"
    else
        echo "device     $(timeout 20 nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader 2>&1 | head -n 1)"
        echo "toolkit    $( (nvcc --version || echo "no nvcc here") 2>/dev/null | tail -n 1)"
        echo "libraries  $(ldd "$PIANOLA_CUDA" 2>/dev/null | sed -nE 's/.*=> ([^ ]*lib(cublasLt|cudart)[^ ]*).*/\1/p' | xargs -r realpath | xargs -rn 1 basename | paste -sd ' ')"
    fi
    echo "date       $(date -u '+%F %H:%M UTC')"
    echo "commit     $commit"
}

# Exits if there is no GPU, because then there is nothing to report or keep.
require_gpu() {
    local said status
    [ ! "$standin" ] || return 0
    said=$(timeout -k 5 60 "$PIANOLA" run schedules/serial.lua --model schedules/models/integers.lua --steps 1 --json --device cuda 2>&1)
    status=$?
    if grep '^pianola: error: no CUDA device' <<<"$said" >&2; then exit 2; fi
    [ $status != 124 ] || { echo "the first step on the GPU did not end within 60 s" >&2 && exit 2; }
}

# keep NAME: copies further output and errors to the results.
keep() {
    results=${RESULTS-tests/gpu/device/results}
    [ ! "$standin" ] && [ "$results" ] || return 0
    mkdir -p "$results" || exit 2
    exec > >(tee "$results/$1-$stamp-$commit.txt") 2>&1
    trap 'exec >&- 2>&-; wait; rm -rf "$room"' EXIT # tee ends after its last line
}

# spawn COMMAND...: runs it in its own room, beside at most JOBS - 1 others. After BUDGET seconds, further commands are
# left out. gather: waits for all, and prints the output of each in the order of the spawns.
spawned=() spawned_pid=() rooms=0
spawn() {
    local own=$room/job$((rooms++))
    while [ "$(jobs -rp | wc -l)" -ge "$JOBS" ]; do wait -n; done
    mkdir "$own"
    spawned+=("$own.said")
    if [ $SECONDS -ge "${BUDGET:-86400}" ]; then
        skip "${*:2:1}" "no time left" >"$own.said"
        return
    fi
    (room=$own && "$@") >"$own.said" 2>&1 &
    spawned_pid+=($!)
}
gather() {
    [ ${#spawned_pid[@]} = 0 ] || wait "${spawned_pid[@]}"
    [ ${#spawned[@]} = 0 ] || cat "${spawned[@]}"
    spawned=() spawned_pid=()
}

# field NAME: prints a figure from the JSON on stdin.
field() { sed -nE "s/^  \"$1\": \"?([^\",]*)\"?,?$/\1/p"; }

# The awk of bench.sh and roofline.sh. FLOPs per token as in llm.c (train_gpt2.cu, gpt2_estimate_mfu): 6 N + 6 L C T,
# where causal attention counts half; PaLM's formula has 12 L C T. t: tokens of a sequence.
count_model='
    $1 ~ /^attention/ && $2 == "forward" { layers = $3; split($1, f, " "); width = f[6] }
    $2 == "update" { split($1, f, " "); n += f[3] }
    $2 == "step" { alone = $4 }
    /^# [0-9]/ { memory = $1; sub(/^# /, "", memory) }
    function token() { return 6 * n + 6 * layers * width * t }'
