#!/usr/bin/env bash
# The same program with its ranks as threads of one process, as processes over MPI, and as processes over TCP: time of a
# step, in turns, and the ratio of the medians to the threads'. Usage: tests/bench/processes.sh [ROUNDS]
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

bench 1f1b-gpt 40 4 schedules/1f1b.lua --model schedules/models/gpt.lua -D workers=4
bench 1f1b-gpt-2 40 2 schedules/1f1b.lua --model schedules/models/gpt.lua -D workers=2
bench ddp-gpt 40 4 schedules/ddp.lua --model schedules/models/gpt.lua -D workers=4
bench 1f1b-tiny 500 4 schedules/1f1b.lua --model schedules/models/integers.lua
