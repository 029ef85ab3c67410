#!/usr/bin/env bash
# Checks optional paths of the CUDA layers on the stand-in. If cuBLASLt refuses an epilogue or a file's algorithm, at
# any call and with any status, the run keeps the bits of the plain path, exits 0 and prints one line on stderr. If a
# plain product fails, the run ends with an error that names it. PIANOLA_EPILOGUES=0 uses no epilogues. In timing, a
# product with an epilogue competes with a product plus a kernel. tests/gpu/kernels/cudnn_run.cpp, run by
# tests/gpu/cuda, covers cuDNN's failures.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
export PIANOLA_CUDA=$PWD/build/standin/libpianola-cuda.so OPENBLAS_NUM_THREADS=1
[ -f "$PIANOLA_CUDA" ] || { echo "$PIANOLA_CUDA is not there: make standin"; exit 1; }
room=$(mktemp -d) || exit 2
trap 'rm -rf "$room"' EXIT

integers="schedules/serial.lua -D stages=1 -D batches=2 --model schedules/models/integers.lua -D layers=2 --steps 3"
gpt="schedules/serial.lua -D stages=1 -D batches=2 --model schedules/models/gpt.lua -D layers=1 -D width=16 -D heads=2
    -D context=8 -D rows=1 --data /usr/share/common-licenses/GPL-3 --steps 3"

# run FLAGS...: prints the exit status and weights; stderr goes to $room/said.
run() {
    local status
    timeout 100 "$PIANOLA" run "$@" --json >"$room/out" 2>"$room/said"
    status=$?
    echo "$status $(field weights <"$room/out")"
}
cuda() { run "$@" --device cuda; }
# lines WORDS: prints the stderr lines that contain them
lines() { grep -c "$1" "$room/said"; }
fell_back() { lines 'epilogue: .* (PIANOLA_EPILOGUES=0 turns all epilogues off)$'; }

# shellcheck disable=SC2086
{
host=$(run $integers)
off=$(PIANOLA_EPILOGUES=0 STANDIN_LT_LOG=$room/log cuda $gpt)
expect "PIANOLA_EPILOGUES=0: only plain products" "launch 1" "$(grep '^launch' "$room/log" | sort -u)"
expect "PIANOLA_EPILOGUES=0: the heuristic is not asked for an epilogue" \
    "heuristic 1" "$(grep '^heuristic' "$room/log" | sort -u)"
expect "PIANOLA_EPILOGUES=0: no line" 0 "$(fell_back)"
rm "$room/log"
on=$(STANDIN_LT_LOG=$room/log cuda $gpt)
expect "epilogues: bias, gelu with bias, gelu's slope, a bias's gradient" "1 164 192 256 4" \
    "$(sed -n 's/^launch //p' "$room/log" | sort -u | paste -sd' ')"
expect "epilogues: no line" 0 "$(fell_back)"
expect "PIANOLA_EPILOGUES=1: the same as unset" "$on" "$(PIANOLA_EPILOGUES=1 cuda $gpt)"
expect "PIANOLA_EPILOGUES=0, integers: the host's bits" "$host" "$(PIANOLA_EPILOGUES=0 cuda $integers)"
expect "epilogues, integers: the host's bits" "$host" "$(cuda $integers)"
expect "PIANOLA_EPILOGUES=off" "1  pianola: error: PIANOLA_EPILOGUES=off: expected 0 or 1" \
    "$(PIANOLA_EPILOGUES=off cuda $integers) $(cat "$room/said")"

# Every status at every call, for all epilogues: gives the bits without epilogues, and one line for each of the four
# kinds.
names=([1]=NOT_INITIALIZED [3]=ALLOC_FAILED [7]=INVALID_VALUE [8]=ARCH_MISMATCH [11]=MAPPING_ERROR [13]=EXECUTION_FAILED
    [14]=INTERNAL_ERROR [15]=NOT_SUPPORTED [16]=LICENSE_ERROR)
for place in heuristic launch; do
    for status in "${!names[@]}"; do
        expect "$place fails with ${names[status]}: the bits of the plain path" "$off" \
            "$(STANDIN_LT_FAILS=$place:$status:fused cuda $gpt)"
        expect "$place fails with ${names[status]}: lines" "4 4" "$(fell_back) $(lines "CUBLAS_STATUS_${names[status]} by ")"
    done
done
for place in attribute result; do
    expect "$place fails: the bits of the plain path" "$off" "$(STANDIN_LT_FAILS=$place:7:fused cuda $gpt)"
    expect "$place fails: lines" "4 4" "$(fell_back) $(lines "CUBLAS_STATUS_INVALID_VALUE by ")"
done

# Each kind alone.
for kind in "4:a bias" "164:gelu" "192:gelu's slope" "256:a bias's gradient"; do
    for place in heuristic launch; do
        expect "$place of ${kind#*:} fails: it trains" "0 16" \
            "$(STANDIN_LT_FAILS=$place:7:${kind%%:*} cuda $gpt | awk '{ print $1, length($2) }')"
        expect "$place of ${kind#*:} fails: one line" "1 1" "$(fell_back) $(lines "^pianola: products with ${kind#*:} in their epilogue: ")"
    done
done
expect "relu fails, integers: the host's bits" "$host" "$(STANDIN_LT_FAILS=launch:7:2 cuda $integers)"
expect "relu fails: one line" "1 1" "$(fell_back) $(lines "^pianola: products with relu in their epilogue: ")"

# Failures after the initial trials, of which each shape and kind has one. All kinds fall back when the first step
# launches them. The log has two plans, because the command measures after it has trained.
tries=$(($(grep -c '^heuristic .*[^1]$' "$room/log") / 2))
for status in 7 13 15; do
    for how in "" --no-graph; do
        expect "the first step's launches fail with ${names[status]} $how: the bits of the plain path" "$off 4" \
            "$(STANDIN_LT_FAILS=launch:$status:fused:$tries cuda $gpt $how) $(fell_back)"
    done
done
}

# On integers, both paths of a bias and of its gradient have the host's bits (tests/gpu/kernels/linear.cpp). The
# launches of the first shape are a trial, its gradient, and the gradient added. Nothing may be added twice: if a launch
# may have begun to add, the process ends.
if [ -e build/standin-check/layers ]; then
    layers() { # prints the exit status and how many failed
        local status
        timeout 100 build/standin-check/layers linear >"$room/out" 2>"$room/said"
        status=$?
        echo "$status $(sed -nE 's/^linear: [1-9][0-9]* passed, ([0-9]+) failed.*/\1/p' "$room/out")"
    }
    expect "linear layers, PIANOLA_EPILOGUES=0" "0 0 0" "$(PIANOLA_EPILOGUES=0 layers) $(fell_back)"
    for fails in heuristic:7:fused launch:13:fused; do
        expect "linear layers, $fails" "0 0 2" "$(STANDIN_LT_FAILS=$fails layers) $(fell_back)"
    done
    for fails in launch:13:4:1 launch:13:256:1 launch:7:256:2 launch:8:256:2; do
        expect "linear layers, $fails" "0 0 1" "$(STANDIN_LT_FAILS=$fails layers) $(fell_back)"
    done
    expect "a product that adds fails after it may have begun" "1 " "$(STANDIN_LT_FAILS=launch:13:256:2 layers)"
    expect "a product that adds fails after it may have begun: why" \
        "pianola: error: cuBLASLt cannot multiply 1 x 1 by 1 x 1, fp32 to fp32: CUBLAS_STATUS_EXECUTION_FAILED by cublasLtMatmul, which may have added a part; PIANOLA_EPILOGUES=0 avoids it" \
        "$(grep error "$room/said")"
fi

# shellcheck disable=SC2086
{
# Plain products have no fallback.
for place in heuristic result launch; do
    by=${place/launch/cublasLtMatmul} by=${by/result/heuristic} by=${by/heuristic/the heuristic}
    expect "a plain product fails, $place" "1 " "$(STANDIN_LT_FAILS=$place:15:plain PIANOLA_EPILOGUES=0 cuda $integers -D precision=bf16)"
    expect "a plain product fails, $place: the error" \
        "pianola: error: cuBLASLt cannot multiply 16 x 16 by 16 x 2, bf16 to bf16: CUBLAS_STATUS_NOT_SUPPORTED by $by" \
        "$(grep error "$room/said")"
done

# ---- timing: a product with an epilogue against a product plus a kernel ----

# ways FILE: prints which path won in each line for a product with an epilogue
ways() { sed -nE 's/.*, epilogue ([0-9]+)\t(apart)?.*/\1 \2/p' "$1" | grep -v '^1 ' | sort -u | paste -sd,; }
expect "fused is faster: its bits" "$on" "$(STANDIN_SLOW=plain STANDIN_FASTEST=0 cuda $gpt --algorithms "$room/fused")"
expect "fused is faster: the file" "164 ,192 ,256 ,4 " "$(ways "$room/fused")"
expect "apart is faster: its bits" "$off" "$(STANDIN_SLOW=fused STANDIN_FASTEST=0 cuda $gpt --algorithms "$room/apart")"
expect "apart is faster: the file" "164 apart,192 apart,256 apart,4 apart" "$(ways "$room/apart")"
expect "apart is faster: from the file, whatever is faster now" "$off" \
    "$(STANDIN_SLOW=plain STANDIN_FASTEST=1 cuda $gpt --algorithms "$room/apart")"
expect "one epilogue is slow: only that one runs apart" "164 apart,192 ,256 ,4 " \
    "$(STANDIN_SLOW=164 STANDIN_FASTEST=0 cuda $gpt --algorithms "$room/gelu" >/dev/null; sed 's/^1 .*//' <(ways "$room/gelu"))"
expect "no message about these choices" 0 "$(lines '^pianola: .*cuBLASLt')"

# Uses a file with the second algorithm of each product, which cuBLASLt then refuses: falls back to the heuristic's
# first.
STANDIN_SLOW=plain STANDIN_FASTEST=1 cuda $gpt --algorithms "$room/second" >/dev/null
second=$(cuda $gpt --algorithms "$room/second")
expect "algorithms of a file: other bits" "0 16 yes" "$(awk '{ print $1, length($2) }' <<<"$second") $([ "$second" != "$on" ] && echo yes)"
n=$(($(wc -l <"$room/second") - 2))
for place in check launch; do
    for status in "${!names[@]}"; do
        expect "$place of a file's algorithms fails with ${names[status]}: the heuristic's first" "$on" \
            "$(STANDIN_LT_FAILS=$place:$status:kept cuda $gpt --algorithms "$room/second")"
        expect "$place of a file's algorithms fails with ${names[status]}: one line" \
            "pianola: $room/second:2: cuBLASLt refuses this algorithm, and those of $n other lines: CUBLAS_STATUS_${names[status]}; the heuristic's first is used instead. Remove such lines to time their products anew, or run without --algorithms" \
            "$(grep cuBLASLt "$room/said")"
    done
done
cp "$room/second" "$room/plain_apart"
sed -i '2s/[^\t]*$/apart/' "$room/plain_apart"
expect "a line that says apart for a plain product" "0 pianola: $room/plain_apart:2: cuBLASLt refuses this algorithm: CUBLAS_STATUS_INVALID_VALUE" \
    "$(cuda $gpt --algorithms "$room/plain_apart" | cut -d' ' -f1) $(sed -n 's/; the heuristic.*//p' "$room/said" | grep cuBLASLt)"

# tests/gpu/device/layer_times.cu shows both paths of each, and which one a step takes.
if [ -e build/standin-check/layer_times.so ]; then
    # both FLAGS...: prints the paths that a step takes, by epilogue
    both() {
        LEAST_SECONDS=0 PIANOLA_CUDA=$PWD/build/standin-check/layer_times.so timeout 100 "$PIANOLA" run $gpt --device cuda "$@" 2>/dev/null |
            awk -F '\t' '$1 ~ / with / { sub(/.* with /, "", $1); seen[$1] = seen[$1] " " $2 (($4 > 0) ? "" : "?") }
                END { for (x in seen) print x ":" seen[x] }' | sort | paste -sd,
    }
    expect "layers alone, on both paths" "a bias's gradient: fused * apart,a bias: fused * apart,gelu's slope: fused * apart,gelu: fused * apart" \
        "$(both | sed -E 's/( fused \* apart)+/ fused * apart/g')"
    expect "layers alone, on both paths, with a file that says apart" "a bias's gradient: fused apart *,a bias: fused apart *,gelu's slope: fused apart *,gelu: fused apart *" \
        "$(both --algorithms "$room/apart" | sed -E 's/( fused apart \*)+/ fused apart */g')"
    expect "layers alone, without epilogues" "" "$(PIANOLA_EPILOGUES=0 both)"
fi
}
finish
