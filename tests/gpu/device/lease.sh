#!/usr/bin/env bash
# Runs every check and measurement that a GPU lent for minutes allows, in one call, the most important first. GPU.md,
# "On a machine lent for minutes", has the call, and what to do about each kind of failure.
#
#   tests/gpu/device/lease.sh [first|speed]     from the repository's root, with build/gpu-check.tar.gz: make gpu-check-pack
#
#   first    checks, and one measurement of everything      speed   ceilings, then where the time goes
#   BUDGET   seconds for all, 540: steps that do not fit are left out and listed
#   OUT      folder for results, build/lease/DATE: console.txt, logs.tgz, and lease-DATE-COMMIT.txt to keep
#   DIR      the programs, build/gpu-check         ONLY     names of the steps to run; default: all
#
# Every step is a process with its own limit and log, so that no step keeps another from running. A training step that
# fails runs again where its fault can be found: eagerly with CUDA_LAUNCH_BLOCKING=1, then under memcheck.
cd "$(dirname "$0")/../../.." || exit 2
mode=${1:-first} BUDGET=${BUDGET:-540} DIR=${DIR:-build/gpu-check}
case $mode in first | speed) ;; *) echo "usage: tests/gpu/device/lease.sh [first|speed]" >&2 && exit 2 ;; esac
[ -d "$DIR" ] || tar -xzf build/gpu-check.tar.gz || { echo "no $DIR, and no build/gpu-check.tar.gz to make it from: make gpu-check-pack" >&2 && exit 2; }
set -- "$DIR"
. tests/gpu/device/lib.sh
OUT=${OUT:-build/lease/$stamp}
mkdir -p "$OUT" && logs=$(mktemp -d) || exit 2
kept=$OUT/lease-$stamp-$commit.txt
exec > >(tee "$OUT/console.txt" "$kept") 2>&1
trap 'exec >&- 2>&-; wait; rm -rf "$room" "$logs"' EXIT
export STAMP=$stamp RESULTS='' CUDA_MODULE_LOADING=${CUDA_MODULE_LOADING:-LAZY}
passed=0 failed=0 left_out=() rows=()

# ---- steps ----

left() { echo $((BUDGET - SECONDS)); }
# sweep MARK: ends what a step left running, found by its environment: nested limits have their own process groups.
sweep() {
    local of
    for of in $(grep -lzxF "$1" /proc/[0-9]*/environ); do
        of=${of#/proc/}
        [ "${of%/*}" = $$ ] || kill -9 "${of%/*}"
    done
} 2>/dev/null
# carry_out NAME SECONDS COMMAND...: writes NAME.txt and NAME.row, which holds its status and time, into the logs. The
# stand-in may take four times as long, since other tests may run beside it.
carry_out() {
    local name=$1 most=$(($2 * (${#standin} ? 4 : 1))) began=${EPOCHREALTIME/./} status
    [ "$most" -le "$(left)" ] || most=$(left)
    STEP=$stamp-$name timeout -k 5 "$most" "${@:3}" >"$logs/$name.txt" 2>&1
    status=$?
    sweep "STEP=$stamp-$name"
    echo "$status $(((${EPOCHREALTIME/./} - began) / 1000)) $most" >"$logs/$name.row"
}
# closing NAME: prints and remembers its row, and more of the log if it failed.
closing() {
    local status ms most verdict
    read -r status ms most <"$logs/$1.row"
    case $status in
    0) verdict=ok && passed=$((passed + 1)) ;;
    124 | 137) verdict="over $most s" && failed=$((failed + 1)) ;;
    *) verdict="exit $status" && failed=$((failed + 1)) ;;
    esac
    rows+=("$(printf '%-10s %5d.%d s  %-18s %s' "$verdict" $((ms / 1000)) $((ms / 100 % 10)) "$1" "$(grep -v '^ *$' "$logs/$1.txt" | tail -n 1 | cut -c 1-200)")")
    echo "${rows[-1]}"
    [ "$status" = 0 ] || { grep -E 'FAILED|error|expected' "$logs/$1.txt" | head -n 8; tail -n 3 "$logs/$1.txt"; } | awk '!seen[$0]++' | cut -c 1-300 | sed 's/^/           | /'
    return "$status"
}
may_start() { # NAME
    local name=${1%-blocking}
    name=${name%-memcheck}
    case " ${ONLY:-$name} " in *" $name "*) ;; *) return 1 ;; esac
    [ "$(left)" -gt 5 ] || { left_out+=("$1") && return 1; }
}
# step NAME SECONDS COMMAND...: runs a step alone on the machine.
step() {
    may_start "$1" || return
    carry_out "$@"
    closing "$1"
}
# beside NAME SECONDS COMMAND...: starts an untimed step beside others; joined: waits for them.
side=()
beside() {
    may_start "$1" || return
    while [ "$(jobs -rp | wc -l)" -ge "$JOBS" ]; do wait -n; done
    carry_out "$@" &
    side+=("$1" $!)
}
joined() {
    local i name bad=()
    for ((i = 0; i < ${#side[@]}; i += 2)); do
        name=${side[i]}
        wait "${side[i + 1]}"
        closing "$name" || bad+=("$name")
    done
    side=()
    for name in "${bad[@]}"; do [ ! "${training[$name]-}" ] || find_fault "$name"; done
}

# train NAME SCHEDULE FLAGS...: starts a run on the GPU beside others.
declare -A training
train() {
    training[$1]=${*:2}
    # shellcheck disable=SC2086
    beside "$1" 60 "$PIANOLA" run ${training[$1]} --device cuda
}
# A kernel's error surfaces at a later call. Here each call waits for its own kernel, so the message names the
# instruction.
find_fault() { # NAME
    local guard="compute-sanitizer --tool memcheck --report-api-errors no --error-exitcode 9"
    # shellcheck disable=SC2086
    step "$1-blocking" 60 env CUDA_LAUNCH_BLOCKING=1 "$PIANOLA" run ${training[$1]} --steps 2 --device cuda --no-graph
    # shellcheck disable=SC2086
    ! command -v compute-sanitizer >/dev/null ||
        step "$1-memcheck" 90 $guard "$PIANOLA" run ${training[$1]} --steps 2 --device cuda --no-graph
}

machine() {
    facts
    uname -r
    echo "$(nproc) processors, $(free -g | awk 'NR == 2 { print $2 }') GiB"
    [ "$standin" ] || nvidia-smi --query-gpu=compute_mode,clocks.max.sm,clocks.max.mem,power.limit --format=csv,noheader
    ldd "$PIANOLA_CUDA" "$DIR/nccl" "$DIR/layers" | grep -E 'cublas|cudart|nccl|not found' | sort -u
    command -v make python3 unshare compute-sanitizer ncu
    "${PYTHON:-python3}" -c 'import torch; print("PyTorch", torch.__version__, torch.cuda.is_available())'
    unshare --uts hostname rank0 && echo "namespaces for host names"
    facts | head -n 1
}

# ---- the steps ----

integers="--model schedules/models/integers.lua --steps 4" gpt="--model schedules/models/gpt.lua --data README.md --steps 20"
few="" ceiling="8192 4096"
[ ! "$standin" ] || { gpt="--model schedules/models/gpt.lua --data README.md -D width=16 -D context=8 -D rows=1 -D heads=2 --steps 2" few="2" ceiling="64 1"; }

right() {
    local layers
    train graph schedules/serial.lua $integers --compare
    train bf16 schedules/serial.lua $integers -D precision=bf16 --compare
    train 1f1b schedules/1f1b.lua $gpt -D workers=4 -D batches=4 --compare
    train 1f1b-bf16 schedules/1f1b.lua $gpt -D workers=4 -D batches=4 -D precision=bf16 --compare
    for layers in kernels attention linear moe fused; do
        beside "$layers" 100 "$DIR/layers" $layers
        beside "$layers-gpt2" 150 "$DIR/layers" $layers gpt2 ${few:-1024}
    done
    beside schedules 150 env CHECKS=schedules JOBS=$(((JOBS + 1) / 2)) BUDGET=140 tests/gpu/device/check.sh "$DIR"
    joined
}

# Shows which CUDA calls hold up the host while it enqueues steps.
host() {
    local said
    said=$(LD_PRELOAD=$PWD/$DIR/host_calls.so "$PIANOLA" run schedules/serial.lua -D stages=1 -D batches=2 --model schedules/models/gpt2.lua \
        -D precision=bf16 -D rows=32 --steps 16 --device cuda 2>&1) || { tail -n 3 <<<"$said" && return 1; }
    grep '^host ' <<<"$said" || echo "no CUDA call took a millisecond"
}

export -f facts machine host
export standin PIANOLA DIR commit
step machine 20 bash -c machine
if [ "$mode" = first ]; then
    step eager 40 "$PIANOLA" run schedules/serial.lua --model schedules/models/integers.lua --steps 1 --device cuda --no-graph
    right
    step bench 150 env PARTS="one layers" tests/gpu/device/bench.sh "$DIR"
    step torch 120 env PARTS=torch tests/gpu/device/bench.sh "$DIR"
    step four 100 env PARTS="four prediction" tests/gpu/device/bench.sh "$DIR"
    [ ! "${LLMC:-}" ] || step llmc 60 env PARTS=llmc tests/gpu/device/bench.sh "$DIR"
    step gpt 100 env CHECKS=gpt JOBS=4 tests/gpu/device/check.sh "$DIR"
    beside units 60 tests/gpu/device/units.sh "$DIR"
    beside nccl-self 40 "$DIR/nccl"
    beside put 150 tests/gpu/device/ranks.sh "$DIR" put
    joined
    step nccl-ranks 60 tests/gpu/device/ranks.sh "$DIR" nccl
    step memcheck 150 env CHECKS=memcheck tests/gpu/device/check.sh "$DIR"
    step racecheck 150 env CHECKS=racecheck tests/gpu/device/check.sh "$DIR"
else
    # shellcheck disable=SC2086
    step ceilings 60 "$DIR/ceilings" $ceiling
    step bench 150 env PARTS="one layers" tests/gpu/device/bench.sh "$DIR"
    step no-cudnn 120 env PIANOLA_CUDNN=0 PARTS="one layers" tests/gpu/device/bench.sh "$DIR"
    step torch 120 env PARTS=torch tests/gpu/device/bench.sh "$DIR"
    step four 100 env PARTS="four prediction" tests/gpu/device/bench.sh "$DIR"
    [ ! "${LLMC:-}" ] || step llmc 60 env PARTS=llmc tests/gpu/device/bench.sh "$DIR"
    [ "$standin" ] || step host 40 bash -c host
    step ncu 200 tests/gpu/device/kernels.sh "$DIR"
fi

# ---- the report: the measurements, then the table ----

for name in machine ceilings bench no-cudnn torch four llmc host ncu; do
    [ ! -s "$logs/$name.txt" ] || { echo && echo "---- $name ----" && cat "$logs/$name.txt"; }
done
echo
echo "---- $mode, $stamp, $commit ----"
printf '%s\n' "${rows[@]}"
[ ${#left_out[@]} = 0 ] || echo "left out, for lack of time: ${left_out[*]}"
rm -f "$logs"/*.row
tar -czf "$OUT/logs.tgz" -C "$logs" .
echo "$passed passed, $failed failed, ${#left_out[@]} left out; all logs: logs.tgz"
[ $failed = 0 ]
