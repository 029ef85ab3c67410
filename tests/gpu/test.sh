#!/usr/bin/env bash
# make gpu-check and make gpu-bench against the stand-in: so that neither runs for the first time on a real GPU. A check
# that fails is counted and ends in exit 1; without a GPU nothing is written to the results.
cd "$(dirname "$0")/../.." || exit 2
. tests/support/lib.sh
built=build/standin-check
[ -e $built/layers ] || { echo "$built is not there: make standin-check"; exit 1; }
room=$(mktemp -d) || exit 2
trap 'rm -rf "$room"' EXIT
before=$(ls tests/gpu/results)

timeout 800 tests/gpu/check.sh $built >"$room/check" 2>&1
expect "gpu-check" 0 $?
expect "gpu-check, what failed" "" "$(grep -A 15 '^FAILED' "$room/check")"
expect "gpu-check, its last line" yes "$(tail -n 1 "$room/check" | grep -qE '^[0-9]{2} passed, 0 failed, [0-9]+ skipped$' && echo yes)"
timeout 400 tests/gpu/bench.sh $built >"$room/bench" 2>&1
expect "gpu-bench" 0 $?
for line in step "algorithms  *[1-9][0-9]* products by time" utilisation CPU idle "linear .* weight" "update of" "1f1b, 4 ranks" "llm.c .* not compared"; do
    expect "gpu-bench says: $line" yes "$(grep -qE "^$line" "$room/bench" && echo yes)"
done
expect "gpu-check says which attention ran" "attention  by attention.cu, not cuDNN" "$(grep '^attention' "$room/check")"
expect "gpu-bench says which attention ran" "attention          by attention.cu, not cuDNN" "$(grep '^attention  *by' "$room/bench")"
expect "gpu-bench takes the device's limits" "limits     989 TFLOP/s, 3.35 TB/s of NVIDIA H100 80GB HBM3 by its datasheet, dense bf16" \
    "$(grep '^limits' "$room/bench")"
expect "devices.tsv: a name and three figures" "" "$(grep -v '^#' tests/gpu/devices.tsv | grep -vP '^NVIDIA [^\t]+(\t[0-9.]+){3}$')"
# Of one that the table lacks, the memory's clock and bus are the stand-in's: 2619 MHz, twice a period, 5120 bits.
DEVICE="NVIDIA Z1" timeout 400 tests/gpu/bench.sh $built >"$room/bench" 2>&1
expect "gpu-bench on an unknown device" 0 $?
expect "an unknown device's limits" "limits     0 TFLOP/s, ? TB/s of NVIDIA Z1, which is not in tests/gpu/devices.tsv: memory by its clock and bus" \
    "$(grep '^limits' "$room/bench")"
expect "an unknown device's memory" "memory             limits with 3.35232 TB/s" "$(grep '^memory' "$room/bench")"
expect "an unknown device's utilisation" yes "$(grep -q '^utilisation .* TFLOP/s of an unknown peak' "$room/bench" && echo yes)"

# The roofline: 2 x 32768 x 768 x 3072 FLOP at 989 TFLOP/s; 2 bytes of each of x, y and w. On an H200 bytes take less.
timeout 100 tests/gpu/roofline.sh $built >"$room/roofline" 2>&1
expect "roofline" 0 $?
expect "roofline: a linear layer" "linear 32768 x 768 to 3072 forward 12 154.60 256.40 FLOP 156.34" \
    "$(sed -nE 's/^(linear .* to 3072 +forward .* 156.34) .*/\1/p' "$room/roofline" | tr -s ' ')"
expect "roofline: the step's FLOP, 6 N + 6 L C T of each token" "8.035e+08 FLOP a token" \
    "$(grep -o '[0-9.e+]* FLOP a token' "$room/roofline")"
expect "roofline of an unknown device" 2 "$(DEVICE=none tests/gpu/roofline.sh $built >/dev/null 2>&1; echo $?)"
ms() { sed -nE 's/^layer by layer +([0-9.]+) ms.*/\1/p'; }
expect "roofline: an H200 is faster" yes "$(DEVICE="NVIDIA H200" tests/gpu/roofline.sh $built | ms |
    awk -v h100="$(ms <"$room/roofline")" '{ print (($1 > 0 && $1 < h100) ? "yes" : "no") }')"
expect "nothing was kept" "$before" "$(ls tests/gpu/results)"

# A heuristic that succeeds with results that did not: gelu and its slope run on their own, and nothing else changes.
STANDIN_NO_GELU=1 OPENBLAS_NUM_THREADS=1 timeout 200 $built/layers fused >"$room/fused"
expect "no gelu of cuBLASLt's: what failed" "20 of 20" "$(grep -c "linear and gelu's slope were one FAILED" "$room/fused") of $(grep -c 'FAILED$' "$room/fused")"

# Programs that each fail in another way: none passes for one that works.
mkdir "$room/standin" && for program in pianola layers nccl libpianola-cuda.so; do
    printf '#!/bin/sh\necho trouble; exit 1\n' >"$room/standin/$program" && chmod +x "$room/standin/$program"
done
failing=$(realpath --relative-to=. "$room/standin")
tests/gpu/check.sh "$failing" >"$room/failing" 2>&1
expect "gpu-check of programs that fail" 1 $?
expect "gpu-check of programs that fail: what passed" "" "$(grep '^passed' "$room/failing")"
tests/gpu/bench.sh "$failing" >"$room/failing" 2>&1
expect "gpu-bench of programs that fail" 1 $?

# What the sanitizer is asked for, by one that only writes it down: racecheck for each of our kernels and no other.
mkdir "$room/gpu" "$room/bin" && cp "$room/standin"/* "$room/gpu"
printf '#!/bin/sh\necho "$@" >>%s\n' "$room/asked" >"$room/bin/compute-sanitizer" && chmod +x "$room/bin/compute-sanitizer"
PATH=$room/bin:$PATH RESULTS=$room CHECKS="memcheck racecheck" tests/gpu/check.sh "$(realpath --relative-to=. "$room/gpu")" >"$room/check" 2>&1
expect "gpu-check under a sanitizer" "0 12 passed, 0 failed, 0 skipped" "$? $(tail -n 1 "$room/check")"
expect "memcheck reports no API errors" 6 "$(grep -c -- '^--tool memcheck .* --report-api-errors no ' "$room/asked")"
filters=$(grep -m 1 '^--tool racecheck ' "$room/asked" | grep -o '_Z[^ ]*')
expect "racecheck has a filter for every kernel" "$(cat runtime/*/*.cu runtime/*/*.cuh | grep -c __global__)" "$(echo "$filters" | wc -l)"
if ls build/cuda/*/*.log >/dev/null 2>&1; then # ptxas names them as the sanitizer does
    expect "racecheck sees every kernel" "" \
        "$(grep -ho "entry function '[^']*'" build/cuda/*/*.log | sort -u | grep -vFf <(echo "$filters" | sed "s/^/'/"))"
fi

# The folder for a real GPU: it builds and packs, its programs load, and without a GPU they say so.
if [ -x "${NVCC:-${CUDA_HOME:-/usr/local/cuda}/bin/nvcc}" ]; then
    timeout 1500 make -s -j"$(nproc)" gpu-check-pack >"$room/pack" 2>&1
    expect "make gpu-check-pack" "0 yes" "$? $(grep -qE '^[0-9]+ MiB in build/gpu-check.tar.gz$' "$room/pack" && echo yes)"
    expect "its libraries" "" "$(LD_LIBRARY_PATH=${CUDA_HOME:-/usr/local/cuda}/lib64 ldd build/gpu-check/{pianola,layers,*.so} | grep 'not found')"
    [ -e /dev/nvidiactl ] || expect "gpu-check without a GPU" "2 pianola: error: no CUDA device" \
        "$(tests/gpu/check.sh build/gpu-check >"$room/none" 2>&1; echo "$? $(grep -o '^pianola: error: no CUDA device' "$room/none")")"
fi
expect "gpu-check of nothing" 2 "$(tests/gpu/check.sh /none >/dev/null 2>&1; echo $?)"
finish
