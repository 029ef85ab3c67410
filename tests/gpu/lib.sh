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

# Libraries that the loader does not find by itself, from the toolkit or wherever they are.
for library in $(ldd "$PIANOLA_CUDA" "$DIR/nccl" 2>/dev/null | awk '/not found/ { print $1 }' | sort -u); do
    at=$(ls "$CUDA_HOME"/lib64/"$library" "$CUDA_HOME"/lib/"$library" 2>/dev/null | head -n 1)
    at=${at:-$(find / -xdev -name "$library" -not -path '/proc/*' 2>/dev/null | head -n 1)}
    [ -n "$at" ] && export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}${at%/*}
done

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
