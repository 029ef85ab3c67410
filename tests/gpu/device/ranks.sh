#!/usr/bin/env bash
# Compares four processes on one GPU with a single rank: on integers, the weights match bit for bit.
#
#   tests/gpu/device/ranks.sh DIR [put|nccl]     programs in DIR/ranks: make gpu-check-build
#
# put: one-sided copies; then ranks are killed and stopped. With several GPUs, also one GPU for each rank. nccl: NCCL
# refuses two ranks of a host on one GPU ("Duplicate GPU detected": src/init.cc compares the hash of the host and the
# bus id). So each rank gets its own host name, in a UTS namespace, and messages go over loopback sockets. This is an
# experiment, and needs the right to make namespaces.
DIR=${1:-build/gpu-check} messages=${2:-put}
cd "$(dirname "$0")/../../.." || exit 2
. tests/gpu/device/lib.sh
. tests/support/lib.sh
programs=$DIR/ranks
[ -f "$programs/made" ] || { echo "$programs holds no programs: make gpu-check-build, where gcc and nvcc are" >&2; exit 2; }
pid=()
trap 'for p in "${pid[@]}"; do kill -9 $p; done 2>/dev/null; rm -rf "$room"' EXIT # no rank stays on the GPU

# NCCL's ranks need a library with NCCL; the machine for put may lack it.
[ "$messages" = put ] || export LD_LIBRARY_PATH=$PWD/$programs/nccl${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
host=()
if [ "$messages" = nccl ]; then
    export LOCAL_RANK=0 NCCL_SOCKET_IFNAME=lo NCCL_IB_DISABLE=1 NCCL_MAX_CTAS=2 NCCL_DEBUG=${NCCL_DEBUG:-WARN}
    # shellcheck disable=SC2016
    host=(unshare --uts sh -c 'hostname "rank$RANK" && exec "$@"' sh)
    if ! said=$(unshare --uts hostname rank0 2>&1); then
        echo "no namespaces for host names here ($said): NCCL would refuse ranks that share a GPU"
        exit 1
    fi
fi

# go NAME N FLAGS...: starts the ranks. ended SECONDS: waits for all and prints their exit codes; kills those that run
# longer.
port=$((20000 + $$ % 10000)) # for the next run
go() {
    local k
    rm -f "$room"/*
    pid=()
    for ((k = 0; k < $2; k++)); do
        RANK=$k WORLD_SIZE=$2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "${host[@]}" "$programs/$1/rank$k" \
            --messages "$messages" --flight "$room" "${@:3}" >"$room/out$k" 2>"$room/err$k" &
        pid+=($!)
    done
    port=$((port + 1))
}
ended() {
    local p until=$((SECONDS + $1))
    codes=
    for p in "${pid[@]}"; do
        while kill -0 "$p"; do
            [ $SECONDS -lt $until ] || kill -9 "$p"
            sleep 0.05
        done
        wait "$p"
        codes+="$? "
    done
    pid=()
} 2>/dev/null
result() { # NAME N FLAGS...
    go "$@"
    ended 60
    echo "$codes$(sed -n 's/^weights *\([0-9a-f]*\).*/\1/p' "$room/out0")$(grep -h -m 1 -E '^standin|error|NCCL WARN' "$room"/err* "$room"/out* | head -n 1)"
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
            expect "$schedule over $messages on $devices $flags" "0 0 0 0 $alone" "$(result $schedule 4 --steps 20 --deadline 40 $flags)"
            echo "$schedule over $messages $flags, GPUs: $devices: $(grep -h '^loss' "$room/out0")"
        done
    done
done
export CUDA_VISIBLE_DEVICES=0
for signal in KILL STOP; do
    [ "$messages" = put ] || continue
    go 1f1b 4 --steps 10000000 --deadline 5
    sleep 8
    rank=${pid[2]} begin=$SECONDS
    kill -$signal "$rank"
    pid=("${pid[@]:0:2}" "${pid[3]}")
    ended 60
    expect "SIG$signal: the others end" "1 1 1 " "$codes"
    expect "SIG$signal: within 15 s" yes "$([ $((SECONDS - begin)) -le 15 ] && echo yes)"
    expect "SIG$signal: they say where they waited" 3 "$(grep -lE '^pianola: rank [0-9] (waits|is) ' "$room"/err[013] | wc -l)"
    grep -hE '^pianola: rank [0-9] waits ' "$room"/err[013]
    kill -9 "$rank"
    wait "$rank"
done 2>/dev/null
finish
