#!/usr/bin/env bash
# make gpu-bench: measures how fast a GPT trains on one GPU, where the time goes, and how well the compiler predicted
# it. With GPU=standin it only checks that this script works; the figures then mean nothing and are not kept.
#
#   tests/gpu/device/bench.sh DIR
#
#   PARTS           parts to run: one layers four prediction torch llmc
#   MODEL, FLAGS    model script and its parameters; GPT-2 124M in bf16
#   CONTEXT, ROWS   tokens of a sequence, sequences of a microbatch      BATCHES, STEPS   microbatches a step, steps
#   PEAK_TFLOPS, MEMORY_TBS   of the device; by default from tests/gpu/device/devices.tsv, by its name
#   LLMC=FILE       llm.c's train_gpt2cu, built for this machine (or DIR, its sources, to be built here)
cd "$(dirname "$0")/../../.." || exit 2
. tests/gpu/device/lib.sh
require_gpu
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

wanted() { case " ${PARTS:-one layers four prediction torch llmc} " in *" $1 "*) ;; *) false ;; esac; }
failed=0
# shellcheck disable=SC2086
run() { # SCHEDULE FLAGS...: JSON
    timeout -k 10 120 "$PIANOLA" run "$@" --model "$MODEL" $FLAGS -D context="$CONTEXT" -D rows="$ROWS" --json \
        --device cuda "${kept[@]}" 2>"$room/errors" && return
    { echo "pianola run $* ended with $?:" && tail -n 3 "$room/errors"; } >&2
    return 1
}
kept=() # algorithms of matrix products, timed by the first run
one="schedules/serial.lua -D stages=1 -D batches=$BATCHES"
rate() { field makespan_measured <"$room/$1" | awk -v n=$((ROWS * CONTEXT * BATCHES)) '{ printf "%.0f", n / $1 }'; }
ms() { field makespan_measured <"$room/$1" | awk '{ printf "%.3f ms", 1e3 * $1 }'; }

# ---- one rank: whole steps ----

# Failed runs are left out of the report.
# shellcheck disable=SC2086
whole_steps() {
    local fine=0
    run $one --steps "$STEPS" >"$room/first" || return
    echo "first algorithms   $(ms first), $(rate first) tokens/s"
    PIANOLA_EPILOGUES=0 run $one --steps "$STEPS" >"$room/apart" && echo "without epilogues  $(ms apart) (PIANOLA_EPILOGUES=0)" || fine=1
    kept=(--algorithms "$room/algorithms")
    run $one --steps "$STEPS" >"$room/one" || { fine=1 kept=() && cp "$room/first" "$room/one"; }
    run $one --steps 3 --timeline "$room/timeline" >/dev/null || fine=1
    PIANOLA_CUDA=$PWD/$DIR/layer_times.so run $one >"$room/layers" || fine=1
    return $fine
}
of_one() { field "$1" <"$room/one"; }
# A step's time is the median of the times between its events.
report_one() {
    grep -h '^pianola: attention' "$room/errors" # why not cuDNN
    sed -n 's/^# attention /attention          /p' "$room/layers"
    awk -F '\t' -v step="$(of_one makespan_measured)" -v tokens=$((ROWS * CONTEXT * BATCHES)) -v t="$CONTEXT" -v peak="$PEAK_TFLOPS" \
        -v planned="$(of_one device_bytes_planned)" -v taken="$(of_one device_bytes_taken)" -v at_end="$(of_one device_bytes_at_end)" \
        -v cpu="$(of_one cpu_seconds_per_step)" -v algorithms="$(grep -vc '^#' "$room/algorithms")" "$count_model"'
        END {
            if (step == "" || layers == "") exit 1
            printf "memory             planned %.0f bytes, taken %.0f, at the end %.0f\n", planned, taken, at_end
            printf "bandwidth          limits with %s TB/s\n", memory
            printf "CPU                %.1f us a step\n", 1e6 * cpu
            printf "algorithms         %d products by time\n", algorithms
            printf "layers alone       %.3f ms a step: %.1f %% of it\n", 1e-3 * alone, 100 * 1e-6 * alone / step
            flops = token() * tokens / step / 1e12
            share = sprintf("%.1f TFLOP/s of an unknown peak", flops)
            if (peak > 0) share = sprintf("%.1f %% of %s TFLOP/s", 100 * flops / peak, peak)
            printf "utilisation        %s: %.4g FLOP a token, 6 N + 6 L C T with N = %d, L = %d, C = %d, T = %d\n",
                share, token(), n, layers, width, t
        }' "$room/layers" || return
    # Idle: no instruction of the last step runs. Gaps between the kernels of an instruction show in the line above
    # instead.
    awk '$1 == 3' "$room/timeline" | sort -t "$(printf '\t')" -k 4,4g | awk -F '\t' '
        !any { any = 1; first = $4; last = $4 }
        $4 > last { idle += $4 - last }
        $5 > last { last = $5 }
        END { if (!any) exit 1; printf "idle               %.2f %% of a step, between instructions (measured timeline)\n", 100 * idle / (last - first) }' || return
    printf 'step               %s (median), %.0f tokens/s; last loss %s\n' "$(ms one)" "$(rate one)" "$(of_one loss_last)"
}

# ---- single layers ----

report_layers() {
    echo
    echo "Each alone, again and again; the limit is what FLOPs or bytes take at least, each operand moved once."
    awk -F '\t' '
        NR == 1 { printf "%-36s %-8s %5s %10s %7s %10s %8s\n", "layer", "way", "count", "us", "share", "limit us", "of limit"; next }
        $2 == "step" || $2 ~ /^(fused|apart)/ || /^#/ { next }
        { printf "%-36s %-8s %5d %10.2f %6.1f%% %10.2f %7.1f%%\n", $1, $2, $3, $4, 100 * $5, $8, 100 * $9 }' "$room/layers"
    echo
    echo "Products with what follows them, as one call of cuBLASLt's or apart; * is what a step takes."
    awk -F '\t' '$2 ~ /^(fused|apart)/ { printf "%-52s %-8s %10.2f us\n", $1, $2, $4 }' "$room/layers"
    echo
}

# ---- four ranks on the one GPU, against one rank with as many microbatches ----

four_ranks() {
    local batches=8
    run schedules/serial.lua -D stages=1 -D batches=$batches --steps 10 >"$room/alone" || return
    run schedules/1f1b.lua -D workers=4 -D batches=$batches --steps 10 >"$room/four" || return
    awk -v p="$(field makespan_predicted <"$room/four")" -v m="$(field makespan_measured <"$room/four")" \
        -v one="$(field makespan_measured <"$room/alone")" 'BEGIN {
            if (m == "" || one == "") exit 1
            printf "1f1b, 4 ranks      in loopback on one GPU %.3f ms, one rank %.3f ms: %.1f %% of its speed; predicted on four GPUs %.3f ms\n",
                1e3 * m, 1e3 * one, 100 * one / m, 1e3 * p
        }'
}

# ---- the prediction, from the costs of another run ----

# shellcheck disable=SC2086
prediction() {
    local shape="$FLAGS -D context=$CONTEXT -D rows=$ROWS"
    run $one --steps 12 --timeline "$room/fitted" >/dev/null || return
    "$PIANOLA" diff $one --model "$MODEL" $shape "$room/fitted" --fit "$room/costs.lua" >"$room/diff" 2>&1
    [ -s "$room/costs.lua" ] || { tail -n 3 "$room/diff" >&2 && return 1; }
    run $one --steps "$STEPS" --cluster "$room/costs.lua" >"$room/predicted" || return
    awk -v p="$(field makespan_predicted <"$room/predicted")" -v m="$(field makespan_measured <"$room/predicted")" 'BEGIN {
        if (p == "" || m == "") exit 1
        printf "prediction         %.3f ms with the costs of another run (--fit), measured %.3f ms: %+.1f %%\n", 1e3 * p, 1e3 * m, 100 * (p / m - 1)
    }'
}

# ---- PyTorch on the same GPU ----

pytorch() {
    local python=${PYTHON:-python3}
    if ! "$python" -c 'import torch' 2>/dev/null; then
        echo "PyTorch            not compared: $python has no torch"
    elif ! CONTEXT=$CONTEXT ROWS=$ROWS BATCHES=$BATCHES STEPS=$STEPS timeout -k 10 200 "$python" tests/gpu/device/torch_gpt2.py compile eager 2>"$room/log"; then
        tail -n 5 "$room/log" >&2
        return 1
    fi
}

# ---- llm.c ----

# Random tokens in llm.c's format: a header of 256 numbers, then 16 bits a token.
tokens_for_llmc() {
    python3 -c 'import random, struct, sys
n = int(sys.argv[1])
out = open(sys.argv[2], "wb")
out.write(struct.pack("<256i", 20240520, 1, n, *[0] * 253))
out.write(struct.pack("<%dH" % n, *[random.randrange(50257) for _ in range(n)]))' "$1" "$2"
}
# Without extras: from scratch, without validation or recompute, with the same number of tokens per step.
llmc() {
    local program=$room/llmc/train_gpt2cu
    mkdir -p "$room/llmc" && tokens_for_llmc $((4 * ROWS * CONTEXT * BATCHES)) "$room/llmc/tokens.bin" || return
    if [ -d "$LLMC" ]; then
        cp -r "$LLMC/." "$room/llmc" && make -s -C "$room/llmc" train_gpt2cu NO_MULTI_GPU=1 ${CUDNN:+USE_CUDNN=1} || return
    else
        cp "$LLMC" "$program" && chmod +x "$program" || return
    fi
    cd "$room/llmc" &&
        timeout -k 10 120 ./train_gpt2cu -i tokens.bin -j tokens.bin -e d12 -b "$ROWS" -t "$CONTEXT" -d $((ROWS * CONTEXT * BATCHES)) \
            -x "$STEPS" -r 0 -v 1000000 -m 1 -s 0
}
report_llmc() {
    if [ -z "${LLMC:-}" ]; then
        echo "llm.c              not compared: LLMC=FILE names its train_gpt2cu"
    elif (llmc) >"$room/log" 2>&1 && grep -q '^step' "$room/log"; then
        grep '^step' "$room/log" | tail -n 1 | sed 's/^/llm.c              /'
    else
        echo "llm.c              did not build or run:"
        tail -n 5 "$room/log" | sed 's/^/    /'
        return 1
    fi
}

part() { ! wanted "$1" || "$2" || failed=1; }
if wanted one || wanted layers; then
    whole_steps || failed=1
    [ ! -s "$room/layers" ] || { part layers report_layers && part one report_one; }
fi
part four four_ranks
part prediction prediction
part torch pytorch
part llmc report_llmc
[ $failed = 0 ]
