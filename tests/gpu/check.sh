#!/usr/bin/env bash
# make gpu-check: everything that one GPU can check of the CUDA half; or, with GPU=standin, that this script works.
#
#   tests/gpu/check.sh DIR    a line for each check, a summary; exit 0: none failed
#
# SEED: of the random data; by default another one each day. CHECKS: which of layers, steps, processes, memcheck and
# racecheck to run, if one call must not take long. Nothing of Lua, BLAS or Criterion is needed here.
cd "$(dirname "$0")/../.." || exit 2
. tests/gpu/lib.sh
export SEED=${SEED:-$(date -u +%Y%m%d)}
passed=0 failed=0 skipped=0
keep check
facts
echo "seed       $SEED"
# Which attention runs where cuDNN's may: in bf16. Why not cuDNN's is on stderr.
[ "$standin" ] && small="gpt.lua -D layers=1 -D width=16 -D heads=2 -D context=8 -D rows=1" || small="gpt2.lua -D size=124M -D rows=1"
# shellcheck disable=SC2086
LEAST_SECONDS=0 PIANOLA_CUDA=$PWD/$DIR/layer_times.so timeout 200 "$PIANOLA" run schedules/serial.lua -D stages=1 -D batches=1 \
    --model schedules/models/$small -D precision=bf16 --json --device cuda 2>&1 |
    sed -nE 's/^# (attention) (.*)/\1  \2/p; s/^pianola: (attention.*without cuDNN.*)/           \1/p'
echo

wanted() { case " ${CHECKS:-layers steps processes memcheck racecheck} " in *" $1 "*) ;; *) false ;; esac; }
fine() { passed=$((passed + 1)) && echo "passed   $1"; }
bad() { failed=$((failed + 1)) && echo "FAILED   $1"; }
skip() { skipped=$((skipped + 1)) && echo "skipped  $1: $2"; }
# try NAME SECONDS COMMAND...: by its exit status; its last line is shown, and more of it when it failed
try() {
    local log=$room/log status
    timeout -k 10 "$2" "${@:3}" >"$log" 2>&1
    status=$?
    if [ $status = 0 ]; then
        fine "$1: $(tail -n 1 "$log")"
    else
        bad "$1: exit status $status"
        tail -n 15 "$log" | sed 's/^/         | /'
    fi
}
# same NAME WANTED GOT
same() { if [ -n "$2" ] && [ "$2" = "$3" ]; then fine "$1"; else bad "$1: ${2:-nothing} and ${3:-nothing}"; fi; }
# within NAME GOT LEAST MOST
within() {
    if awk -v x="$2" -v a="$3" -v b="$4" 'BEGIN { exit !(x != "" && x + 0 >= a && x + 0 <= b) }'; then fine "$1: $2"; else
        bad "$1: ${2:-nothing}, which is not from $3 to $4"
    fi
}
run() { timeout -k 10 200 "$PIANOLA" run "$@" --json 2>"$room/errors" || tail -n 3 "$room/errors" >&2; }
cuda() { run "$@" --device cuda; }

# ---- each layer against the host reference, fp32 and bf16; tolerances are stated in tests/kernels/*.cpp ----

wanted layers && for layers in kernels attention linear moe fused; do
    try "$layers against the host" 300 "$DIR/layers" $layers
    try "$layers against the host, GPT-2's shapes" 300 "$DIR/layers" $layers gpt2 $([ "$standin" ] && echo 2 || echo 1024)
done

# ---- whole steps: all ranks in loopback ----

integers="--model schedules/models/integers.lua --steps 4"
text="--model schedules/models/gpt.lua --data README.md --seed $SEED"
[ "$standin" ] && text="$text -D width=16 -D context=8 -D rows=1 -D heads=2 --steps 2" || text="$text --steps 20"
GLOBIGNORE=schedules/pianola.d.lua # for editors; no schedule
schedules=$(ls schedules/*.lua)
[ ! "$standin" ] || schedules=$(echo schedules/{1f1b,zbv,fslpp,ddp,1f1b_offload}.lua) # tests/cuda/test.sh has all of them there
# shellcheck disable=SC2086
wanted steps && for schedule in $schedules; do
    name=$(basename "$schedule" .lua)
    same "$name in loopback, integers: the host's bits" "$(run "$schedule" $integers | field weights)" \
        "$(cuda "$schedule" $integers | field weights)"
    same "$name in loopback, integers in bf16: the bits of one rank" true \
        "$(cuda "$schedule" $integers -D precision=bf16 --compare | field one_rank_same_weights)"
done
# gpt NAME MOST SCHEDULE FLAGS...: a loss may differ by MOST from that of one rank
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
    # Memory beyond the plan is CUDA's own: streams, events, cuBLASLt.
    within "$name: device memory taken beyond the $(field device_bytes_planned <"$room/graph") bytes planned" \
        "$(awk -v p="$(field device_bytes_planned <"$room/graph")" -v t="$(field device_bytes_taken <"$room/graph")" \
            'BEGIN { if (p != "" && t != "") print t - p }')" 0 $([ "$standin" ] && echo 0 || echo 67108864)
}
# Algorithms of products by time: they are kept, so the bits are; without them the losses are near.
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
against_host() { # NAME FLAGS...
    local loss
    # shellcheck disable=SC2086
    loss=$(run "${@:2}" $text | field loss_last)
    within "$1 in loopback, GPT: the last loss against the host's, relative" \
        "$(field loss_last <"$room/graph" | awk -v h="$loss" '{ d = $1 / h - 1; print d < 0 ? -d : d }')" 0 "$host"
}
# fp32: other sums in other orders. On a GPU a cut between a linear layer and its gelu, or a row less, is another product
# of cuBLASLt's, whose gelu may not be ours (tests/kernels/fused.cpp says what its header leaves open).
[ "$standin" ] && fp32=1e-5 host=1e-4 || fp32=1e-3 host=1e-3
if wanted steps; then
    gpt 1f1b "$fp32" schedules/1f1b.lua -D workers=4 -D batches=4
    against_host 1f1b schedules/1f1b.lua -D workers=4 -D batches=4
    gpt "fslpp, tied" "$fp32" schedules/fslpp.lua -D batches=4 -D tied=true
    against_host "fslpp, tied" schedules/fslpp.lua -D batches=4 -D tied=true
    algorithms 1f1b "$fp32" schedules/1f1b.lua -D workers=4 -D batches=4
    algorithms "1f1b, bf16" 1e-2 schedules/1f1b.lua -D workers=4 -D batches=4 -D precision=bf16
    gpt "1f1b, bf16" 1e-2 schedules/1f1b.lua -D workers=4 -D batches=4 -D precision=bf16
    gpt "1f1b_offload, bf16" 1e-2 schedules/1f1b_offload.lua -D workers=4 -D batches=4 -D precision=bf16
fi

# ---- between processes, as far as one GPU goes ----

wanted processes && try "NCCL, one rank that sends to itself" 100 "$DIR/nccl"
wanted processes && for more in ranks put; do # programs of a rank; one-sided copies between four
    if [ -x tests/gpu/$more.sh ]; then try "$more" 300 tests/gpu/$more.sh "$DIR"; else skip "$more" "tests/gpu/$more.sh is not there"; fi
done

# ---- the sanitizer ----

# Options as in docs.nvidia.com/compute-sanitizer/ComputeSanitizer, "Command Line Options" and "Filters" (of CUDA 12.3 and
# newer: release notes, 2023.3). memcheck takes any CUDA call that fails for an error, such as the CUDA_ERROR_NOT_FOUND
# by which the libraries learn what a driver lacks (cuGetProcAddress; NVIDIA/cuda-python#687); ours end the program.
# racecheck looks at our kernels alone: in a vendor's, a report is nothing that we could mend (NVIDIA/cudf#20875).
# A filter is part of a mangled name; one that matches suffices.
ours() { # the names behind __global__
    cat runtime/*/*.cu runtime/*/*.cuh | tr '\n' ' ' |
        grep -oE '__global__ void +(__launch_bounds__\([^)]*\) +)?[a-z0-9_]+\(' | sed -E 's/.* ([a-z0-9_]+)\($/\1/' | sort -u |
        awk '{ printf " --kernel-name kns=_Z%d%s", length($1), $1 }'
}
# shellcheck disable=SC2086
sanitize() {
    local tool=$1 guard="compute-sanitizer --tool $1 --error-exitcode 9"
    case $tool in memcheck) guard+=" --report-api-errors no" ;; racecheck) guard+=$(ours) ;; esac
    for layers in kernels attention linear moe fused; do try "$tool, $layers" 400 $guard "$DIR/layers" $layers; done
    try "$tool, a step in loopback" 400 $guard "$PIANOLA" run schedules/1f1b.lua -D workers=2 -D batches=2 \
        --model schedules/models/gpt.lua -D layers=2 -D width=32 -D context=16 -D rows=1 --steps 2 --json --device cuda
}
for tool in memcheck racecheck; do
    if ! wanted $tool; then
        continue
    elif [ "$standin" ]; then
        skip "$tool" "it needs a GPU"
    elif ! command -v compute-sanitizer >/dev/null; then
        skip "$tool" "compute-sanitizer is not here"
    else
        sanitize $tool
    fi
done
[ "$standin" ] && skip "driver and kernels of a real GPU" "this is the stand-in"

echo
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
