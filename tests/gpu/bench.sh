#!/usr/bin/env bash
# make gpu-bench: how fast a GPT trains on one GPU, where the time goes, and how well the compiler predicted it; or,
# with GPU=standin, that this script works: the figures then mean nothing, and are not kept.
#
#   tests/gpu/bench.sh DIR
#
#   MODEL, FLAGS    model script and its parameters; GPT-2 124M in bf16
#   CONTEXT, ROWS   tokens of a sequence, sequences of a microbatch      BATCHES, STEPS   microbatches a step, steps
#   PEAK_TFLOPS, MEMORY_TBS   of the device: by its name, from tests/gpu/devices.tsv
#   LLMC=DIR        llm.c's sources: built and run here, for comparison
cd "$(dirname "$0")/../.." || exit 2
. tests/gpu/lib.sh
if [ "$standin" ]; then
    MODEL=${MODEL:-schedules/models/gpt.lua} FLAGS=${FLAGS:--D layers=2 -D width=16 -D heads=2 -D tied=true -D precision=bf16}
    CONTEXT=${CONTEXT:-8} ROWS=${ROWS:-2} BATCHES=${BATCHES:-2} STEPS=${STEPS:-3} LEAST_SECONDS=0
fi
MODEL=${MODEL:-schedules/models/gpt2.lua} FLAGS=${FLAGS:--D size=124M -D precision=bf16}
CONTEXT=${CONTEXT:-1024} ROWS=${ROWS:-32} BATCHES=${BATCHES:-2} STEPS=${STEPS:-30}
case $FLAGS in *precision=bf16*) limits bf16 ;; *) limits fp32 ;; esac
export LEAST_SECONDS=${LEAST_SECONDS:-0.02}
keep bench
facts
echo "model      $MODEL $FLAGS; $ROWS sequences of $CONTEXT tokens a microbatch, $BATCHES microbatches a step, $STEPS steps"
echo "limits     $PEAK_TFLOPS TFLOP/s, ${MEMORY_TBS:-?} TB/s $LIMITS"
echo

# shellcheck disable=SC2086
run() { # SCHEDULE FLAGS...: JSON
    timeout -k 10 400 "$PIANOLA" run "$@" --model "$MODEL" $FLAGS -D context="$CONTEXT" -D rows="$ROWS" --json \
        --device cuda "${kept[@]}" 2>"$room/errors" || { tail -n 3 "$room/errors" >&2; return 1; }
}
kept=() # the algorithms of matrix products, timed by the first run that has it
one="schedules/serial.lua -D stages=1 -D batches=$BATCHES"
failed=0

# ---- one rank: whole steps ----

# shellcheck disable=SC2086
{
    run $one --steps "$STEPS" >"$room/first" || failed=1
    kept=(--algorithms "$room/algorithms")
    run $one --steps "$STEPS" >"$room/one" || failed=1
    run $one --steps 3 --timeline "$room/timeline" >/dev/null || failed=1
    PIANOLA_CUDA=$PWD/$DIR/layer_times.so run $one >"$room/layers" || failed=1
}
# A step's time is the median of events around it.
awk -F '\t' -v step="$(field makespan_measured <"$room/one")" -v tokens=$((ROWS * CONTEXT * BATCHES)) -v t="$CONTEXT" \
    -v first="$(field makespan_measured <"$room/first")" -v algorithms="$(($(wc -l <"$room/algorithms") - 1))" \
    -v peak="$PEAK_TFLOPS" -v cpu="$(field cpu_seconds_per_step <"$room/one")" -v loss="$(field loss_last <"$room/one")" "$count_model"'
    END {
        if (step == "" || layers == "") exit 1
        printf "step               %.3f ms (median), %.0f tokens/s; last loss %s\n", 1e3 * step, tokens / step, loss
        printf "algorithms         %d products by time; with the heuristic'"'"'s first, a step takes %.3f ms\n", algorithms, 1e3 * first
        flops = token() * tokens / step / 1e12
        share = sprintf("%.1f TFLOP/s of an unknown peak", flops)
        if (peak > 0) share = sprintf("%.1f %% of %s TFLOP/s", 100 * flops / peak, peak)
        printf "utilisation        %s: %.4g FLOP a token, 6 N + 6 L C T with N = %d, L = %d, C = %d, T = %d\n",
            share, token(), n, layers, width, t
        printf "memory             limits with %s TB/s\n", memory
        printf "CPU                %.1f us a step\n", 1e6 * cpu
        printf "layers alone       %.3f ms a step: %.1f %% of it\n", 1e-3 * alone, 100 * 1e-6 * alone / step
    }' "$room/layers" || failed=1
sed -n 's/^# attention /attention          /p' "$room/layers"
grep -h '^pianola: attention' "$room/errors" # why not cuDNN
# Idle: when no instruction of the last step runs. Gaps between the kernels of an instruction show in the line above,
# not here.
awk '$1 == 3' "$room/timeline" | sort -t "$(printf '\t')" -k 4,4g | awk -F '\t' '
    !any { any = 1; first = $4; last = $4 }
    $4 > last { idle += $4 - last }
    $5 > last { last = $5 }
    END { if (!any) exit 1; printf "idle               %.2f %% of a step, between instructions (measured timeline)\n", 100 * idle / (last - first) }' || failed=1

# ---- layers alone ----

echo
echo "Each alone, again and again; the limit is what FLOPs or bytes take at least, each operand moved once."
awk -F '\t' '
    NR == 1 { printf "%-36s %-8s %5s %10s %7s %10s %8s\n", "layer", "way", "count", "us", "share", "limit us", "of limit"; next }
    $2 == "step" || /^#/ { next }
    { printf "%-36s %-8s %5d %10.2f %6.1f%% %10.2f %7.1f%%\n", $1, $2, $3, $4, 100 * $5, $8, 100 * $9 }' "$room/layers"

# ---- four ranks on the one GPU ----

echo
run schedules/1f1b.lua -D workers=4 -D batches=8 --steps 5 >"$room/four" || failed=1
awk -v p="$(field makespan_predicted <"$room/four")" -v m="$(field makespan_measured <"$room/four")" \
    -v w="$(field work <"$room/four")" 'BEGIN {
        if (m == "") exit 1
        printf "1f1b, 4 ranks      predicted %.3f ms on four GPUs; in loopback on one %.3f ms, where one rank takes %.3f ms\n",
            1e3 * p, 1e3 * m, 1e3 * w
    }' || failed=1

# ---- llm.c ----

# Random tokens in its format: a header of 256 numbers, then 16 bits a token.
tokens_for_llmc() {
    python3 -c 'import random, struct, sys
n = int(sys.argv[1])
out = open(sys.argv[2], "wb")
out.write(struct.pack("<256i", 20240520, 1, n, *[0] * 253))
out.write(struct.pack("<%dH" % n, *[random.randrange(50257) for _ in range(n)]))' "$1" "$2"
}
llmc() { # as few extras as it has: from scratch, no validation, no recomputation, as many tokens a step
    cp -r "$LLMC" "$room/llmc" && tokens_for_llmc $((4 * ROWS * CONTEXT * BATCHES)) "$room/llmc/tokens.bin" &&
        make -s -C "$room/llmc" train_gpt2cu NO_MULTI_GPU=1 ${CUDNN:+USE_CUDNN=1} >"$room/log" 2>&1 && cd "$room/llmc" &&
        timeout 300 ./train_gpt2cu -i tokens.bin -j tokens.bin -e d12 -b "$ROWS" -t "$CONTEXT" -d $((ROWS * CONTEXT * BATCHES)) \
            -x "$STEPS" -r 0 -v 1000000 -m 1 -s 0 >"$room/log" 2>&1
}
echo
if [ -z "${LLMC:-}" ]; then
    echo "llm.c              not compared: LLMC=DIR names its sources"
elif (llmc); then
    grep '^step' "$room/log" | tail -n 1 | sed 's/^/llm.c              /'
else
    echo "llm.c              did not build or run:"
    tail -n 5 "$room/log" | sed 's/^/    /'
    failed=1
fi
[ $failed = 0 ]
