# For test scripts that start and disturb ranks: . tests/support/ranks.sh, after tests/support/lib.sh. Programs are in
# $room, checkpoints go to $saved, and rank K's output to $room/err<K> and $room/out<K>. All of mpirun's ranks write to
# err0 and out0. suffix=.gpu starts ranks on GPUs.
room=$(mktemp -d)
saved=$room/saved
suffix=${suffix-}
pid=()
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PKG_CONFIG_PATH=$PWD/build:$PKG_CONFIG_PATH
export TMPDIR=$room OMPI_MCA_btl_vader_backing_directory=$room # removes the leftovers of killed ranks together with the room

# train SCHEDULE ARGS...: runs all ranks in one process and prints JSON.
train() { timeout 300 "$PIANOLA" run "$@" --json 2>"$room/stderr"; }
# compiled NAME SCHEDULE ARGS...: builds its ranks as shared objects, for CPUs and for the stand-in (tests/training/matrix/any_rank.c).
# That takes a tenth of the time of make in its folder.
compiled() {
    local source
    "$PIANOLA" compile "schedules/$2.lua" "${@:3}" -o "$room/$1" || exit 2
    for source in "$room/$1"/rank*.cu; do
        cc -std=c11 -shared -fPIC -Ibuild/include -x c "$source" -o "${source%.cu}.so" || exit 2
        ln -sf "$PWD/build/any-rank" "${source%.cu}"
        ln -sf "$PWD/build/standin/any-rank" "${source%.cu}.gpu"
    done
}
forget() { rm -f "$room"/err* "$room"/out* "$room"/flight-*; }

# tcp NAME N FLAGS...: starts ranks; pid[K] is rank K's process. Each run has its own address, so that ports cannot
# clash.
meetings=0
tcp() {
    local k
    forget
    pid=() meetings=$((meetings + 1))
    for ((k = 0; k < $2; k++)); do
        RANK=$k WORLD_SIZE=$2 MASTER_ADDR=127.$((1 + $$ / 250 % 250)).$(($$ % 250)).$((meetings % 250 + 1)) \
            MASTER_PORT=29500 "$room/$1/rank$k$suffix" --flight "$room" "${@:3}" >"$room/out$k" 2>"$room/err$k" &
        pid+=($!)
    done
}
# mpi NAME N FLAGS...: starts ranks; pid[0] is mpirun's process.
mpi() {
    forget
    mpirun --oversubscribe -n "$2" "$room/$1/rank$suffix" --flight "$room" "${@:3}" >"$room/out0" 2>"$room/err0" &
    pid=($!)
}
rank_pid() { # K: prints the process id of mpirun's rank K
    local p
    for p in $(cat /proc/"${pid[0]}"/task/*/children); do
        [[ $(tr '\0' ' ' <"/proc/$p/cmdline") != */rank$1$suffix\ * ]] || echo "$p"
    done
}

# stuck CALL FLAGS...: trains 1F1B in threads of one process; one never returns from that call
# (tests/processes/faults/stuck.c).
stuck() {
    forget
    cc -shared -fPIC -fno-builtin -o "$room/stuck.so" tests/processes/faults/stuck.c
    STUCK=$1 LD_PRELOAD=$room/stuck.so LIBXSMM_TARGET=sse timeout 30 "$PIANOLA" run schedules/1f1b.lua --flight "$room" \
        --steps 100000 --deadline 3 "${@:2}" >"$room/out0" 2>"$room/err0"
    codes=$?
    local k at='is at [0-9]+ [FB] [0-9] [0-9]|waits (at [0-9]+ (RECV|SEND)_[FB] (act|grad)\([0-9],[0-9]\) (from|to) rank [0-9]|for all ranks to end the step)'
    expect "a thread that stops at call $1: exit code" 1 $codes
    expect "a thread that stops at call $1: all say where" 4 \
        "$(grep -cE "^pianola: rank [0-9] ($at): step [0-9]+ has taken 3 s \(--deadline\)\$" "$room/err0")"
    expect "a thread that stops at call $1: they name instructions" yes "$(says '^pianola: rank [0-9] (is|waits) at [0-9]+ ')"
    for k in 0 1 2 3; do
        expect "a thread that stops at call $1: the flight record of rank $k" "$(said "^pianola: rank $k .*--deadline")" \
            "pianola: $(head -n 1 "$room/flight-rank$k.txt" | sed 's/ of 1f1b / /')"
    done
}

runs() { [[ $(sed 's/.*) //' "/proc/$1/stat" 2>/dev/null) == [^Z]* ]]; }

# ended SECONDS: puts all exit codes into $codes; kills processes that run longer, with code 137.
ended() {
    local until=$((${EPOCHREALTIME/./} + $1 * 1000000)) p
    codes=
    for p in "${pid[@]}"; do
        while kill -0 "$p"; do
            ((${EPOCHREALTIME/./} < until)) || kill -9 "$p"
            sleep 0.02
        done
        wait "$p"
        codes+="${codes:+ }$?"
    done
} 2>/dev/null

# newest: prints the step of the newest checkpoint with a manifest, or 0.
newest() {
    local all=("$saved"/step-*/manifest.json)
    [[ ${all[-1]} =~ step-0*([0-9]+)/ ]] && echo "${BASH_REMATCH[1]}" || echo 0
}
# until_true WHAT COMMAND...: waits at most 30 s for the command to succeed.
until_true() {
    local i
    for ((i = 0; i < 1500; i++)); do
        ! "${@:2}" || return 0
        sleep 0.02
    done
    expect "$1" yes no
}
reached() { until_true "step $1 is reached" eval "((\$(newest) >= $1))"; }
begun() { until_true "the ranks begin" grep -qsE '(one thread a rank|for the step|enqueued anew)$' "$room/err0"; }
weights() { sed -n 's/^weights *\([0-9a-f]*\).*/\1/p' "$room/out0"; }
said() { grep -hE "$1" "$room"/err* | head -n 1; } # the first such line
says() { grep -qE "$1" "$room/err${2:-0}" && echo yes; }

cleaned() { # also if the script ends early
    local p
    for p in "${pid[@]}"; do
        [ ! -e "/proc/$p" ] || kill -9 "$p"
    done
    rm -rf "$room"
} 2>/dev/null
trap cleaned EXIT
