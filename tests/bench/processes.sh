#!/usr/bin/env bash
# Times a step of one program with its ranks as threads of one process, as processes over MPI, and as processes over
# TCP, in turns, and prints the ratio of the medians to the threads'. Then does so for FSDP with two plans of its
# gathers.
# Usage: tests/bench/processes.sh [ROUNDS]
cd "$(dirname "$0")/../.." || exit 2
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
rounds=${1:-5}

figure() { sed -nE "s/^ *\"$1\": ([0-9.e+-]*),?$/\1/p"; }
threads() { build/pianola run "$@" --json 2>/dev/null | figure seconds_per_step; }
mpi() { mpirun --oversubscribe -n "$workers" "$room/$name/rank" --json "$@" 2>/dev/null | figure seconds_per_step; }
tcp() {
    for ((r = workers - 1; r > 0; r--)); do
        "$room/$name/rank" --rank $r --world-size "$workers" --master-addr 127.0.0.1 --master-port 29471 "$@" &
    done >/dev/null 2>&1
    "$room/$name/rank" --rank 0 --world-size "$workers" --master-addr 127.0.0.1 --master-port 29471 --json "$@" 2>/dev/null |
        figure seconds_per_step
    wait
}
median() { sort -g | awk '{ x[NR] = $1 } END { print x[int((NR + 1) / 2)] }'; }

# bench NAME STEPS WORKERS SCHEDULE FLAGS...
bench() {
    name=$1 steps=$2 workers=$3
    build/pianola compile "${@:4}" -o "$room/$name" && make -s -C "$room/$name" PKG_CONFIG_PATH="$PWD/build" || exit 2
    for ((i = 0; i < rounds; i++)); do
        threads "${@:4}" --steps "$steps" >>"$room/threads"
        mpi --steps "$steps" >>"$room/mpi"
        tcp --steps "$steps" >>"$room/tcp"
    done
    awk -v name="$name" -v w="$workers" -v c="$(nproc)" -v a="$(median <"$room/threads")" -v b="$(median <"$room/mpi")" \
        -v t="$(median <"$room/tcp")" 'BEGIN { printf "%s, %d ranks on %d cores: threads %.2f ms a step; processes over " \
        "MPI %.2f ms, ratio %.2f; over TCP %.2f ms, ratio %.2f\n", name, w, c, 1e3 * a, 1e3 * b, b / a, 1e3 * t, t / a }'
    rm -f "$room/threads" "$room/mpi" "$room/tcp"
}

# prefetch NAME STEPS WORKERS SCHEDULE FLAGS...: times the solved plan of gathers and --prefetch just-in-time, in turns
prefetch() {
    name=$1 steps=$2 workers=$3
    local as just="$1-just-in-time"
    for as in "$1" "$just"; do
        build/pianola compile "${@:4}" $([ "$as" = "$1" ] || echo --prefetch just-in-time) -o "$room/$as" &&
            make -s -C "$room/$as" PKG_CONFIG_PATH="$PWD/build" || exit 2
    done
    for ((i = 0; i < rounds; i++)); do
        threads "${@:4}" --steps "$steps" >>"$room/threads"
        threads "${@:4}" --prefetch just-in-time --steps "$steps" >>"$room/threads-just"
        name=$1 mpi --steps "$steps" >>"$room/mpi"
        name=$just mpi --steps "$steps" >>"$room/mpi-just"
    done
    awk -v name="$1" -v w="$workers" -v c="$(nproc)" -v a="$(median <"$room/threads")" -v b="$(median <"$room/threads-just")" \
        -v m="$(median <"$room/mpi")" -v n="$(median <"$room/mpi-just")" 'BEGIN { printf "%s, %d ranks on %d cores, solved " \
        "prefetch to just in time: threads %.2f to %.2f ms a step, ratio %.2f; over MPI %.2f to %.2f ms, ratio %.2f\n", \
        name, w, c, 1e3 * a, 1e3 * b, a / b, 1e3 * m, 1e3 * n, m / n }'
    rm -f "$room"/threads* "$room"/mpi*
}

bench 1f1b-gpt 40 4 schedules/1f1b.lua --model schedules/models/gpt.lua -D workers=4
bench 1f1b-gpt-2 40 2 schedules/1f1b.lua --model schedules/models/gpt.lua -D workers=2
bench ddp-gpt 40 4 schedules/ddp.lua --model schedules/models/gpt.lua -D workers=4
bench 1f1b-tiny 500 4 schedules/1f1b.lua --model schedules/models/integers.lua
prefetch fsdp-gpt 40 4 schedules/fsdp.lua --model schedules/models/gpt.lua -D workers=4 -D batches=8
