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
for line in step utilisation CPU idle "linear .* weight" "update of" "1f1b, 4 ranks" "llm.c .* not compared"; do
    expect "gpu-bench says: $line" yes "$(grep -qE "^$line" "$room/bench" && echo yes)"
done
expect "nothing was kept" "$before" "$(ls tests/gpu/results)"

# A heuristic that succeeds with results that did not: gelu and its slope run on their own, and nothing else changes.
STANDIN_NO_GELU=1 OPENBLAS_NUM_THREADS=1 timeout 200 $built/layers fused >"$room/fused"
expect "no gelu of cuBLASLt's: what failed" "10 of 10" "$(grep -c "linear and gelu's slope were one FAILED" "$room/fused") of $(grep -c 'FAILED$' "$room/fused")"

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
expect "gpu-check under a sanitizer" "0 10 passed, 0 failed, 0 skipped" "$? $(tail -n 1 "$room/check")"
expect "memcheck reports no API errors" 5 "$(grep -c -- '^--tool memcheck .* --report-api-errors no ' "$room/asked")"
filters=$(grep -m 1 '^--tool racecheck ' "$room/asked" | grep -o '_Z[^ ]*')
expect "racecheck has a filter for every kernel" "$(cat runtime/*/*.cu runtime/*/*.cuh | grep -c __global__)" "$(echo "$filters" | wc -l)"
if ls build/cuda/*/*.log >/dev/null 2>&1; then # ptxas names them as the sanitizer does
    expect "racecheck sees every kernel" "" \
        "$(grep -ho "entry function '[^']*'" build/cuda/*/*.log | sort -u | grep -vFf <(echo "$filters" | sed "s/^/'/"))"
fi
expect "gpu-check of nothing" 2 "$(tests/gpu/check.sh /none >/dev/null 2>&1; echo $?)"
finish
