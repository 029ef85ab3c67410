#!/usr/bin/env bash
# Four processes over put, on one GPU, against one rank alone: integers, so the weights are the same bit for bit. Then
# ranks that die and stop. tests/gpu/put.sh DIR: make gpu-check-build made DIR/put. With several GPUs, also with one GPU
# per rank.
DIR=${1:-build/gpu-check}
cd "$(dirname "$0")/../.." || exit 2
[ -f "$DIR/put/ranks" ] || { echo "$DIR/put holds no programs: make gpu-check-build, where gcc and nvcc are" >&2; exit 2; }
. tests/support/lib.sh
CUDA_HOME=${CUDA_HOME:-/usr/local/cuda}
export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$CUDA_HOME/lib64
room=$(mktemp -d) || exit 2
trap 'rm -rf "$room"' EXIT

# go NAME N FLAGS...: starts the ranks. ended: their exit codes, once all have ended.
go() {
    local k
    rm -f "$room"/*
    pid=()
    for ((k = 0; k < $2; k++)); do
        RANK=$k WORLD_SIZE=$2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port timeout 100 "$DIR/put/$1/rank$k" \
            --messages put --flight "$room" "${@:3}" >"$room/out$k" 2>"$room/err$k" &
        pid+=($!)
    done
    port=$((port + 1))
}
port=$((20000 + $$ % 10000)) # of the next run
ended() {
    local p
    codes=
    for p in "${pid[@]}"; do
        wait "$p"
        codes+="$? "
    done
} 2>/dev/null
result() { # NAME N FLAGS...
    go "$@"
    ended
    echo "$codes$(sed -n 's/^weights *\([0-9a-f]*\).*/\1/p' "$room/out0")$(grep -h -m 1 -E '^standin|error' "$room"/err* | head -n 1)"
}

alone=$(result serial 1 --steps 20)
expect "one rank ($(sed -n 's/^pianola: //p' "$room/err0" | head -n 1))" "0 ${#alone}" "${alone%% *} 18"
alone=${alone#0 }
gpus=$(nvidia-smi -L 2>/dev/null | wc -l)
for devices in 0 all; do
    [ $devices = 0 ] || [ "$gpus" -ge 4 ] || continue
    if [ $devices = 0 ]; then export CUDA_VISIBLE_DEVICES=0 STANDIN_DEVICES=1; else unset CUDA_VISIBLE_DEVICES; fi
    for schedule in 1f1b fslpp ddp; do
        for flags in "" --no-graph; do
            # shellcheck disable=SC2086
            expect "$schedule on $devices $flags" "0 0 0 0 $alone" "$(result $schedule 4 --steps 20 --deadline 60 $flags)"
            echo "$schedule $flags, GPUs: $devices: $(grep -h '^loss' "$room/out0")"
        done
    done
done
export CUDA_VISIBLE_DEVICES=0
for signal in KILL STOP; do
    go 1f1b 4 --steps 10000000 --deadline 5
    sleep 8
    rank=$(cat /proc/"${pid[2]}"/task/*/children) # of timeout
    kill -$signal "$rank"
    begin=$SECONDS
    killed=${pid[2]}
    pid=("${pid[@]:0:2}" "${pid[3]}")
    ended
    expect "SIG$signal: the others end" "1 1 1 " "$codes"
    expect "SIG$signal: within 15 s" yes "$([ $((SECONDS - begin)) -le 15 ] && echo yes)"
    expect "SIG$signal: they say where they waited" 3 "$(grep -lE '^pianola: rank [0-9] (waits|is) ' "$room"/err[013] | wc -l)"
    grep -hE '^pianola: rank [0-9] waits ' "$room"/err[013]
    kill -9 "$rank" 2>/dev/null
    wait "$killed" 2>/dev/null
done
finish
