#!/usr/bin/env bash
# make gpu-check: all checks of the CUDA runtime that one GPU allows. With GPU=standin it checks that this script works.
#
#   tests/gpu/device/check.sh DIR    prints a line for each check, and a summary; exits 0 if none failed
#
#   CHECKS   checks to run, if one call must be short: facts layers schedules gpt processes memcheck racecheck
#   JOBS     programs at once; default: the number of processors     BUDGET  seconds after which no check starts
#   SEED     of the random data; by default another one each day
#
# Needs neither Lua, BLAS nor Criterion.
cd "$(dirname "$0")/../../.." || exit 2
. tests/gpu/device/lib.sh
require_gpu
export SEED=${SEED:-$(date -u +%Y%m%d)}
keep check
wanted() { case " ${CHECKS:-facts layers schedules gpt processes memcheck racecheck} " in *" $1 "*) ;; *) false ;; esac; }
fine() { echo "passed   $1"; }
bad() { echo "FAILED   $1"; }
skip() { echo "skipped  $1: $2"; }
# try NAME SECONDS COMMAND...: checks the exit status; prints the last line, and more if it failed
try() {
    local log=$room/log status
    timeout -k 10 "$2" "${@:3}" >"$log" 2>&1
    status=$?
    if [ $status = 0 ]; then
        fine "$1: $(tail -n 1 "$log")"
    elif grep -q 'Internal Sanitizer Error' "$log"; then
        skip "$1" "compute-sanitizer itself failed:$(sed -n 's/.*Internal Sanitizer Error://p' "$log" | head -n 1) It checked nothing from there on"
    else
        bad "$1: $([ $status = 124 ] && echo "not done after $2 s" || echo "exit status $status")"
        tail -n 15 "$log" | sed 's/^/         | /'
    fi
}
# same NAME WANTED GOT: checks equality
same() { if [ -n "$2" ] && [ "$2" = "$3" ]; then fine "$1"; else bad "$1: ${2:-nothing} and ${3:-nothing}"; fi; }
# within NAME GOT LEAST MOST: checks a range, ends included
within() {
    if awk -v x="$2" -v a="$3" -v b="$4" 'BEGIN { exit !(x != "" && x + 0 >= a && x + 0 <= b) }'; then fine "$1: $2"; else
        bad "$1: ${2:-nothing}, which is not from $3 to $4"
    fi
}
# run ARGS...: prints JSON; error messages go to the checks.
run() {
    timeout -k 10 "$RUN_SECONDS" "$PIANOLA" run "$@" --json 2>"$room/errors" && return
    { echo "         | pianola run $* ended with $?:" && tail -n 3 "$room/errors" | sed 's/^/         | /'; } >&2
}
RUN_SECONDS=$([ "$standin" ] && echo 200 || echo 60)
cuda() { run "$@" --device cuda; }

# ---- the device, and which attention runs on it ----

# In bf16, cuDNN's attention must run where it can; a build without cudnn.h has none.
attention() {
    local small="gpt2.lua -D size=124M -D rows=1" said
    [ ! "$standin" ] || small="gpt.lua -D layers=1 -D width=16 -D heads=2 -D context=8 -D rows=1"
    # shellcheck disable=SC2086
    said=$(LEAST_SECONDS=0 PIANOLA_CUDA=$PWD/$DIR/layer_times.so timeout 60 "$PIANOLA" run schedules/serial.lua -D stages=1 \
        -D batches=1 --model schedules/models/$small -D precision=bf16 --json --device cuda 2>&1)
    sed -nE 's/^# (attention) (.*)/\1  \2/p; s/^pianola: (attention.*without cuDNN.*)/           \1/p' <<<"$said"
    case $(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null) in
    9.*)
        if grep -q '^# attention by cuDNN' <<<"$said"; then fine "attention is cuDNN's on Hopper"; else
            bad "attention is not cuDNN's on Hopper: $(grep -m 1 -E 'without cuDNN|error' <<<"$said" || echo "built without cudnn.h?")"
        fi
        ;;
    esac
}
facts_first() {
    facts
    echo "seed       $SEED"
    attention
    echo
}

# ---- each layer against the host reference, fp32 and bf16; tests/gpu/kernels/*.cpp state the tolerances ----

layers() {
    local layers rows=1024
    [ ! "$standin" ] || rows=2
    for layers in kernels attention linear moe fused; do
        spawn try "$layers against the host" 200 "$DIR/layers" $layers
        spawn try "$layers against the host, GPT-2's shapes" 200 "$DIR/layers" $layers gpt2 $rows
    done
    gather
}

# ---- whole steps: all ranks in loopback ----

integers="--model schedules/models/integers.lua --steps 4"
GLOBIGNORE=schedules/pianola.d.lua # this file is for editors, and no schedule
several_updates() { "$PIANOLA" show "$1" --format streams | grep -q '^updates '; }
# shellcheck disable=SC2086
bits() { # NAME SCHEDULE
    same "$1: the host's bits" "$(run "$2" $integers | field weights)" "$(cuda "$2" $integers | field weights)"
    if several_updates "$2"; then # one rank trains differently
        same "$1 in bf16: graph and eager replay, the same bits" "$(cuda "$2" $integers -D precision=bf16 | field weights)" \
            "$(cuda "$2" $integers -D precision=bf16 --no-graph | field weights)"
    else
        same "$1 in bf16: the bits of one rank" true \
            "$(cuda "$2" $integers -D precision=bf16 --compare | field one_rank_same_weights)"
    fi
}
schedules() {
    local schedule all
    all=$(ls schedules/*.lua)
    [ ! "$standin" ] || all=$(echo schedules/{1f1b,zbv,fslpp,ddp,1f1b_offload,pipedream}.lua) # tests/gpu/cuda/test.sh runs all of them there
    for schedule in $all; do
        spawn bits "$(basename "$schedule" .lua) in loopback, integers" "$schedule"
    done
    gather
}

text="--model schedules/models/gpt.lua --data README.md --seed $SEED"
[ "$standin" ] && text="$text -D width=16 -D context=8 -D rows=1 -D heads=2 --steps 2" || text="$text --steps 20"
# gpt NAME MOST SCHEDULE FLAGS...: checks that a loss differs from one rank's by at most MOST
# shellcheck disable=SC2086
gpt() {
    local name="$1 in loopback, GPT" most=$2
    shift 2
    cuda "$@" $text --compare >"$room/graph"
    within "$name: losses against one rank, relative" "$(field one_rank_largest_difference <"$room/graph")" 0 "$most"
    same "$name: graph and eager replay, the same bits" "$(field weights <"$room/graph")" \
        "$(cuda "$@" $text --no-graph | field weights)"
    same "$name: timed, the same bits" "$(field weights <"$room/graph")" \
        "$(cuda "$@" $text --timeline "$room/timeline" | field weights)"
}
# Memory beyond the plan belongs to CUDA: streams, events, cuBLASLt, and at the end also kernels loaded late, and
# graphs. CUDA reports free memory for the whole device, so nothing else may run there.
memory() { # NAME SCHEDULE FLAGS...
    local name="$1 in loopback, GPT" planned beyond most
    # shellcheck disable=SC2086
    cuda "${@:2}" $text >"$room/alone"
    planned=$(field device_bytes_planned <"$room/alone")
    for beyond in taken at_end; do
        most=268435456
        [ $beyond = at_end ] || most=67108864
        [ ! "$standin" ] || most=0
        within "$name: device memory $beyond, beyond the $planned bytes planned" \
            "$(field device_bytes_$beyond <"$room/alone" | awk -v p="$planned" 'p != "" { print $1 - p }')" 0 $most
    done
}
# against_host NAME FLAGS...: compares the last loss of a run on the host and on the GPU
against_host() {
    local loss
    # shellcheck disable=SC2086
    loss=$(run "${@:2}" $text | field loss_last)
    # shellcheck disable=SC2086
    within "$1 in loopback, GPT: the last loss against the host's, relative" \
        "$(cuda "${@:2}" $text | field loss_last | awk -v h="$loss" '{ d = $1 / h - 1; print d < 0 ? -d : d }')" 0 "$host"
}
# Product algorithms chosen by time are kept, and so are the bits. Without the file, the losses are close.
algorithms() { # NAME MOST SCHEDULE FLAGS...
    local name="$1 in loopback, GPT, algorithms by time" most=$2 first again
    shift 2
    # shellcheck disable=SC2086
    cuda "$@" $text | field loss_last >"$room/first"
    # shellcheck disable=SC2086
    cuda "$@" $text --algorithms "$room/algorithms" >"$room/timed"
    first=$(cksum "$room/algorithms")
    # shellcheck disable=SC2086
    again=$(cuda "$@" $text --algorithms "$room/algorithms" | field weights)
    same "$name: from the file, the same bits" "$(field weights <"$room/timed")" "$again"
    same "$name: the file is whole" "$first" "$(cksum "$room/algorithms")"
    within "$name: the last loss against the heuristic's first, relative" \
        "$(field loss_last <"$room/timed" | awk -v h="$(cat "$room/first")" '{ d = $1 / h - 1; print d < 0 ? -d : d }')" 0 "$most"
}
# fp32: sums in other orders. On a GPU, a cut between a linear layer and its gelu, or one row less, uses another product
# of cuBLASLt, whose gelu may differ from ours (tests/gpu/kernels/fused.cpp says what its header leaves open).
[ "$standin" ] && fp32=1e-5 host=1e-4 || fp32=1e-3 host=1e-3
gpts() {
    local pipeline="schedules/1f1b.lua -D workers=4 -D batches=4" tied="schedules/fslpp.lua -D batches=4 -D tied=true"
    local offload="schedules/1f1b_offload.lua -D workers=4 -D batches=4"
    # shellcheck disable=SC2086
    {
        spawn gpt 1f1b "$fp32" $pipeline
        spawn against_host 1f1b $pipeline
        spawn gpt "fslpp, tied" "$fp32" $tied
        spawn against_host "fslpp, tied" $tied
        spawn algorithms 1f1b "$fp32" $pipeline
        spawn algorithms "1f1b, bf16" 1e-2 $pipeline -D precision=bf16
        spawn gpt "1f1b, bf16" 1e-2 $pipeline -D precision=bf16
        spawn gpt "1f1b_offload, bf16" 1e-2 $offload -D precision=bf16
    }
    gather
    # shellcheck disable=SC2086
    {
        memory 1f1b $pipeline
        memory "fslpp, tied" $tied
        memory "1f1b, bf16" $pipeline -D precision=bf16
        memory "1f1b_offload, bf16" $offload -D precision=bf16
    }
}

# ---- between processes, as far as possible on one GPU ----

processes() {
    try "NCCL, one rank that sends to itself" 60 "$DIR/nccl"
    try "ranks over NCCL" 150 tests/gpu/device/ranks.sh "$DIR" nccl
    try "ranks over put" 200 tests/gpu/device/ranks.sh "$DIR" put
}

# ---- the sanitizer ----

# Options as in docs.nvidia.com/compute-sanitizer/ComputeSanitizer, "Command Line Options" and "Filters" (CUDA 12.3 and
# newer: release notes, 2023.3). memcheck reports any failing CUDA call as an error. The libraries use some, such as
# CUDA_ERROR_NOT_FOUND, to learn what a driver lacks (cuGetProcAddress; NVIDIA/cuda-python#687); ours end the program.
# racecheck covers our kernels alone, since we could not fix a vendor's (NVIDIA/cudf#20875). A filter is a part of a
# mangled name; one match suffices.
ours() { # prints the names after __global__
    cat runtime/*/*.cu runtime/*/*.cuh | tr '\n' ' ' |
        grep -oE '__global__ void +(__launch_bounds__\([^)]*\) +)?[a-z0-9_]+\(' | sed -E 's/.* ([a-z0-9_]+)\($/\1/' | sort -u |
        awk '{ printf " --kernel-name kns=_Z%d%s", length($1), $1 }'
}
# shellcheck disable=SC2086
sanitize() { # TOOL
    local tool=$1 guard="compute-sanitizer --tool $1 --error-exitcode 9" layers
    if [ "$standin" ]; then
        skip "$tool" "it needs a GPU"
        return
    elif ! command -v compute-sanitizer >/dev/null; then
        skip "$tool" "compute-sanitizer is not here"
        return
    fi
    case $tool in memcheck) guard+=" --report-api-errors no" ;; racecheck) guard+=$(ours) ;; esac
    spawn try "$tool, a step in loopback" 300 $guard "$PIANOLA" run schedules/1f1b.lua -D workers=2 -D batches=2 \
        --model schedules/models/gpt.lua -D layers=2 -D width=32 -D context=16 -D rows=1 --steps 2 --json --device cuda
    for layers in kernels attention linear moe fused; do spawn try "$tool, $layers" 300 $guard "$DIR/layers" $layers; done
    gather
}

# Runs everything that is requested.
all() {
    ! wanted facts || facts_first
    ! wanted layers || layers
    ! wanted schedules || schedules
    ! wanted gpt || gpts
    ! wanted processes || processes
    ! wanted memcheck || sanitize memcheck
    ! wanted racecheck || sanitize racecheck
    [ ! "$standin" ] || skip "driver and kernels of a real GPU" "this is the stand-in"
}
all | tee "$room/checks"
count() { grep -c "^$1 " "$room/checks"; }
echo
echo "$(count passed) passed, $(count FAILED) failed, $(count skipped) skipped"
[ "$(count FAILED)" = 0 ]
