#!/usr/bin/env bash
# Runs the scripts for a GPU against the stand-in, so that none runs for the first time on a real GPU. A failing check
# is counted and gives exit 1. Without a GPU, nothing is written to the results.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
built=build/standin-check
[ -e $built/layers ] || { echo "$built is not there: make standin-check"; exit 1; }
room=$(mktemp -d) || exit 2
trap 'rm -rf "$room"' EXIT
before=$(ls tests/gpu/device/results)

# ---- a whole lease: every step that a GPU would run ----

log_of() { tar -xOzf "$room/lease/logs.tgz" "./$1.txt"; }
OUT=$room/lease BUDGET=800 DIR=$built timeout 850 tests/gpu/device/lease.sh >"$room/said" 2>&1
expect "a lease" 0 $?
expect "a lease: no step failed" "" "$(grep -E -A 15 '^(exit|over) ' "$room/said")"
expect "a lease: its last line" yes "$(tail -n 1 "$room/said" | grep -qE '^[0-9]{2} passed, 0 failed, 0 left out; all logs: logs.tgz$' && echo yes)"
expect "a lease: the console is kept" "" "$(cmp "$room/said" "$room/lease/console.txt"; cmp "$room/said" "$room"/lease/lease-*.txt)"
rows=$(tac "$room/said" | sed '/^---- first/,$d' | grep '^ok ')
expect "a lease: a log of each step" "" "$(comm -3 <(awk '{ print "./" $4 ".txt" }' <<<"$rows" | sort) <(tar -tzf "$room/lease/logs.tgz" | grep txt | sort))"
log_of bench >"$room/bench"
for line in "first algorithms" "without epilogues" step "algorithms  *[1-9][0-9]* products by time" utilisation "memory  *planned [1-9]" CPU idle "linear .* weight" "update of" \
    "linear .* with gelu  *fused" "linear .* with gelu  *apart"; do
    expect "gpu-bench says: $line" yes "$(grep -qE "^$line" "$room/bench" && echo yes)"
done
expect "the last line is the step's" yes "$(tail -n 1 "$room/bench" | grep -q '^step  *[0-9.]* ms (median), [0-9]* tokens/s; last loss [0-9.]*$' && echo yes)"
log_of four >"$room/four"
for line in "1f1b, 4 ranks .* % of its speed" "prediction .* with the costs of another run"; do
    expect "gpu-bench says: $line" yes "$(grep -qE "^$line" "$room/four" && echo yes)"
done
expect "gpu-bench reports a missing PyTorch" yes "$(log_of torch | grep -qE '^PyTorch +(not compared: .* has no torch|[0-9.]+)' && echo yes)"
expect "units: their losses" "scale: 20 losses" "$(log_of units | grep '^scale' | cut -d, -f 1)"
expect "ranks: over put 13, over NCCL 7" "13 passed, 0 failed 7 passed, 0 failed" "$(log_of put | tail -n 1) $(log_of nccl-ranks | tail -n 1)"

# ---- steps of a lease that fail ----

mkdir -p "$room/standin/ranks" && touch "$room/standin/ranks/made" # the device name says that it is no GPU
fake() { printf '#!/bin/sh\n%s\n' "$2" >"$room/standin/$1" && chmod +x "$room/standin/$1"; }
for program in pianola layers nccl ceilings libpianola-cuda.so; do fake $program 'echo trouble; exit 1'; done
failing=$(realpath --relative-to=. "$room/standin")
OUT=$room/failing BUDGET=60 DIR=$failing timeout 90 tests/gpu/device/lease.sh >"$room/said" 2>&1
expect "a lease of programs that fail" "1 machine memcheck racecheck torch" "$? $(grep '^ok ' "$room/said" | awk '{ print $4 }' | sort -u | paste -sd ' ')"
for name in graph bf16 1f1b 1f1b-bf16; do
    expect "a fault in $name: the step runs again eagerly" yes "$(grep -q "^exit 1 .* $name-blocking  *trouble" "$room/said" && echo yes)"
done
STANDIN_FAULT='(mse<T>)' STANDIN_FAULT_AT=9 OUT=$room/fault ONLY=graph DIR=$built timeout 60 tests/gpu/device/lease.sh >"$room/said" 2>&1
expect "a fault: the instruction is named, in its row and in the table" "1 2" "$? $(grep -cE '^exit 1 .* graph-blocking .*cudaErrorIllegalAddress.*, in rank 0, step [12]: [0-9]F[0-9]*;' "$room/said")"
# Programs that hang: the limit ends them and their children, and the table says what was left out.
fake pianola 'sleep 1000 & wait'
OUT=$room/hanging BUDGET=9 DIR=$failing timeout 60 tests/gpu/device/lease.sh >"$room/said" 2>&1
expect "a lease of programs that hang" "1 over 1" "$? $(grep -o '^over' "$room/said" | sort -u) $(grep -c '^left out, for lack of time: .* memcheck racecheck$' "$room/said")"
expect "nothing is left running" "" "$(grep -lz "^STEP=" /proc/[0-9]*/environ 2>/dev/null)"
expect "a lease with an unknown argument" 2 "$(tests/gpu/device/lease.sh fast >/dev/null 2>&1; echo $?)"
expect "a lease without programs" 2 "$(DIR=$room/none-standin tests/gpu/device/lease.sh >/dev/null 2>&1; echo $?)"

# ---- the lease for speed, with an ncu that prints what the real one prints ----

mkdir "$room/bin"
cat >"$room/bin/ncu" <<'EOF2'
#!/bin/sh
case "$*" in
*"--set full --kernel-name norm_forward --launch-count 1"*) echo "==PROF== x"; echo "  Duration us 5" ;;
*"--section SpeedOfLight --section Occupancy --csv"*" run schedules/serial.lua "*" --no-graph "*) cat <<'CSV'
==PROF== Connected to process 12
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC","Section Name","Metric Name","Metric Unit","Metric Value","Rule Name","Rule Type","Rule Description"
"0","12","pianola","127.0.0.1","void norm_forward<__nv_bfloat16>(float *)","1","7","(256, 1, 1)","(64, 1, 1)","0","9.0","GPU Speed Of Light Throughput","Duration","us","5.00","","",""
"0","12","pianola","127.0.0.1","void norm_forward<__nv_bfloat16>(float *)","1","7","(256, 1, 1)","(64, 1, 1)","0","9.0","GPU Speed Of Light Throughput","Compute (SM) Throughput","%","11.00","","",""
"0","12","pianola","127.0.0.1","void norm_forward<__nv_bfloat16>(float *)","1","7","(256, 1, 1)","(64, 1, 1)","0","9.0","GPU Speed Of Light Throughput","Memory Throughput","%","40.00","","",""
"0","12","pianola","127.0.0.1","void norm_forward<__nv_bfloat16>(float *)","1","7","(256, 1, 1)","(64, 1, 1)","0","9.0","Occupancy","Achieved Occupancy","%","50.00","","",""
"0","12","pianola","127.0.0.1","void norm_forward<__nv_bfloat16>(float *)","1","7","(256, 1, 1)","(64, 1, 1)","0","9.0","Occupancy","","","","Occupancy","OPT","more, blocks"
"1","12","pianola","127.0.0.1","nvjet_hsh_256x128","1","7","(384, 1, 1)","(132, 1, 1)","0","9.0","GPU Speed Of Light Throughput","Duration","ms","0.02","","",""
"1","12","pianola","127.0.0.1","nvjet_hsh_256x128","1","7","(384, 1, 1)","(132, 1, 1)","0","9.0","GPU Speed Of Light Throughput","Compute (SM) Throughput","%","85.00","","",""
"1","12","pianola","127.0.0.1","nvjet_hsh_256x128","1","7","(384, 1, 1)","(132, 1, 1)","0","9.0","GPU Speed Of Light Throughput","Memory Throughput","%","50.00","","",""
CSV
;;
*) exit 1 ;;
esac
EOF2
chmod +x "$room/bin/ncu"
PATH=$room/bin:$PATH OUT=$room/speed BUDGET=300 ONLY="ceilings ncu" DIR=$built timeout 350 tests/gpu/device/lease.sh speed >"$room/said" 2>&1
expect "a lease for speed" "0 2 passed, 0 failed, 0 left out; all logs: logs.tgz" "$? $(tail -n 1 "$room/said")"
expect "a lease for speed: ceilings" \
    2 "$(grep -cE '^(bf16 product of 64\^3|copy of 1 MiB) +[0-9.]+ T(FLOP|B)/s' "$room/said")"
expect "a lease for speed: kernels" "2 kernels, 25.0 us alone, one after the other" "$(grep ' kernels, ' "$room/said")"
expect "the slowest kernel comes first" "1 20.0 80.0% 85.0% 50.0% 0.0% nvjet_hsh_256x128" "$(grep -A 2 ' kernels, ' "$room/said" | tail -n 1 | tr -s ' ' | sed 's/^ //')"
expect "kernels below 60 % are shown in full" "  Duration us 5" "$(grep -A 1 '^---- norm_forward, its first launch ----' "$room/said" | tail -n 1)"
fake ncu 'exit 0' && mv "$room/standin/ncu" "$room/bin/ncu"
expect "an ncu without a table" "1 ncu wrote no table: nothing" "$(PATH=$room/bin:$PATH tests/gpu/device/kernels.sh $built >"$room/said" 2>&1; echo "$? $(tail -n 1 "$room/said")")"

# ---- its parts, one by one ----

CHECKS=facts timeout 100 tests/gpu/device/check.sh $built >"$room/check" 2>&1
expect "gpu-check, its last line" "0 passed, 0 failed, 1 skipped" "$(tail -n 1 "$room/check")"
CHECKS=schedules BUDGET=0 tests/gpu/device/check.sh $built >"$room/late" 2>&1
expect "gpu-check without time" "0 passed, 0 failed, 7 skipped" "$(tail -n 1 "$room/late")"
expect "gpu-check says which attention ran" "attention  by attention.cu, not cuDNN" "$(grep '^attention' "$room/check")"
expect "gpu-bench says which attention ran" "attention          by attention.cu, not cuDNN" "$(grep '^attention  *by' "$room/bench")"
printf '#!/bin/sh\n%s\n' '[ "$1" = -i ] && [ -s "$2" ] && echo "step 3/3 | loss 5.0 | 7 ms | 1000 tok/s"' >"$room/train_gpt2cu"
LLMC=$room/train_gpt2cu PARTS=llmc tests/gpu/device/bench.sh $built >"$room/llmc" 2>&1
expect "llm.c's program" "0 llm.c              step 3/3 | loss 5.0 | 7 ms | 1000 tok/s" "$? $(tail -n 1 "$room/llmc")"
LLMC=$room/llmc PARTS=llmc tests/gpu/device/bench.sh $built >"$room/llmc" 2>&1
expect "an LLMC folder that cannot be built" \
    "1 llm.c              did not build or run:" "$? $(grep '^llm.c' "$room/llmc")"
expect "gpu-bench takes the device's limits" "limits     989 TFLOP/s, 3.35 TB/s of NVIDIA H100 80GB HBM3 by its datasheet, dense bf16" \
    "$(grep '^limits' "$room/bench")"
expect "devices.tsv: a name and three figures" "" "$(grep -v '^#' tests/gpu/device/devices.tsv | grep -vP '^NVIDIA [^\t]+(\t[0-9.]+){3}$')"
# For a GPU that the table lacks, uses the stand-in's memory clock and bus: 2619 MHz, twice a period, 5120 bits.
DEVICE="NVIDIA Z1" PARTS=one timeout 400 tests/gpu/device/bench.sh $built >"$room/bench" 2>&1
expect "gpu-bench on an unknown device" 0 $?
expect "an unknown device's limits" "limits     0 TFLOP/s, ? TB/s of NVIDIA Z1, which is not in tests/gpu/device/devices.tsv: memory by its clock and bus" \
    "$(grep '^limits' "$room/bench")"
expect "an unknown device's memory" "bandwidth          limits with 3.35232 TB/s" "$(grep '^bandwidth' "$room/bench")"
expect "an unknown device's utilisation" yes "$(grep -q '^utilisation .* TFLOP/s of an unknown peak' "$room/bench" && echo yes)"

# The roofline: 2 x 32768 x 768 x 3072 FLOP at 989 TFLOP/s; 2 bytes for each of x, y and w. Bytes take less on an H200.
timeout 100 tests/gpu/device/roofline.sh $built >"$room/roofline" 2>&1
expect "roofline" 0 $?
expect "roofline: a linear layer" "linear 32768 x 768 to 3072 forward 12 154.60 256.40 FLOP 156.34" \
    "$(sed -nE 's/^(linear .* to 3072 +forward .* 156.34) .*/\1/p' "$room/roofline" | tr -s ' ')"
expect "roofline: the step's FLOP, 6 N + 6 L C T of each token" "8.035e+08 FLOP a token" \
    "$(grep -o '[0-9.e+]* FLOP a token' "$room/roofline")"
expect "roofline of an unknown device" 2 "$(DEVICE=none tests/gpu/device/roofline.sh $built >/dev/null 2>&1; echo $?)"
ms() { sed -nE 's/^layer by layer +([0-9.]+) ms.*/\1/p'; }
expect "roofline: an H200 is faster" yes "$(DEVICE="NVIDIA H200" tests/gpu/device/roofline.sh $built | ms |
    awk -v h100="$(ms <"$room/roofline")" '{ print (($1 > 0 && $1 < h100) ? "yes" : "no") }')"
expect "no results were kept" "$before" "$(ls tests/gpu/device/results)"

# The heuristic succeeds, but some of its results did not: gelu and its slope run separately, and nothing else changes.
STANDIN_NO_GELU=1 OPENBLAS_NUM_THREADS=1 timeout 200 $built/layers fused >"$room/fused" 2>&1
expect "without cuBLASLt's gelu: only the checks of that fusion fail" "20 of 20" "$(grep -c "linear and gelu's slope were one FAILED" "$room/fused") of $(grep -c 'FAILED$' "$room/fused")"

# Split-k algorithms: their parts are added in fp32, so integers in bf16 stay exact.
STANDIN_SPLIT=1 OPENBLAS_NUM_THREADS=1 timeout 200 $built/layers linear >"$room/split" 2>&1
expect "products in pieces: no check failed" "0 0" "$? $(grep -c 'FAILED$' "$room/split")"

# A program that fails is not counted as one that works.
fake pianola 'echo trouble; exit 1'
tests/gpu/device/check.sh "$failing" >"$room/said" 2>&1
expect "gpu-check of programs that fail" 1 $?
expect "gpu-check of programs that fail: none passed" "" "$(grep '^passed' "$room/said")"
tests/gpu/device/bench.sh "$failing" >"$room/said" 2>&1
expect "gpu-bench of programs that fail" 1 $?

# Records the sanitizer's arguments with a fake one: racecheck runs on each of our kernels and no other.
mkdir "$room/gpu" && cp -r "$room/standin"/* "$room/gpu"
printf '#!/bin/sh\necho "$@" >>%s\n' "$room/asked" >"$room/bin/compute-sanitizer" && chmod +x "$room/bin/compute-sanitizer"
PATH=$room/bin:$PATH RESULTS=$room CHECKS="memcheck racecheck" tests/gpu/device/check.sh "$(realpath --relative-to=. "$room/gpu")" >"$room/check" 2>&1
expect "gpu-check under a sanitizer" "0 12 passed, 0 failed, 0 skipped" "$? $(tail -n 1 "$room/check")"
expect "memcheck reports no API errors" 6 "$(grep -c -- '^--tool memcheck .* --report-api-errors no ' "$room/asked")"
filters=$(grep -m 1 '^--tool racecheck ' "$room/asked" | grep -o '_Z[^ ]*')
expect "racecheck has a filter for every kernel" "$(cat runtime/*/*.cu runtime/*/*.cuh | grep -c __global__)" "$(echo "$filters" | wc -l)"
if ls build/cuda/*/*.log >/dev/null 2>&1; then # ptxas and the sanitizer print the same names
    expect "racecheck sees every kernel" "" \
        "$(grep -ho "entry function '[^']*'" build/cuda/*/*.log | sort -u | grep -vFf <(echo "$filters" | sed "s/^/'/"))"
fi

# The folder for a real GPU builds. Its programs load, and without a GPU they say so.
if [ -x "${NVCC:-${CUDA_HOME:-/usr/local/cuda}/bin/nvcc}" ]; then
    timeout 1500 make -s -j"$(nproc)" gpu-check-build CODE=all >"$room/built" 2>&1
    expect "make gpu-check-build" 0 $?
    expect "the folder has its libraries" "" "$(LD_LIBRARY_PATH=${CUDA_HOME:-/usr/local/cuda}/lib64 ldd build/gpu-check-all/{pianola,layers,*.so} | grep 'not found')"
    [ -e /dev/nvidiactl ] || expect "gpu-check without a GPU" "2 pianola: error: no CUDA device" \
        "$(tests/gpu/device/check.sh build/gpu-check-all >"$room/none" 2>&1; echo "$? $(grep -o '^pianola: error: no CUDA device' "$room/none")")"
fi
expect "gpu-check of a missing folder" 2 "$(tests/gpu/device/check.sh /none >/dev/null 2>&1; echo $?)"
finish
