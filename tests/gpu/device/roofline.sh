#!/usr/bin/env bash
# make roofline: prints the least time of a GPT-2 step on a GPU, layer by layer, for comparison with measurements
# (gpu-bench). Measures nothing and needs no GPU: FLOPs and bytes come from layer_times.cu, the device's limits from a
# datasheet.
#
#   tests/gpu/device/roofline.sh DIR    DEVICE= a name of tests/gpu/device/devices.tsv; MODEL, FLAGS, CONTEXT, ROWS, BATCHES as for bench.sh
cd "$(dirname "$0")/../../.." || exit 2
DEVICE=${DEVICE:-NVIDIA H100 80GB HBM3}
. tests/gpu/device/lib.sh
MODEL=${MODEL:-schedules/models/gpt2.lua} FLAGS=${FLAGS:--D size=124M -D precision=bf16}
CONTEXT=${CONTEXT:-1024} ROWS=${ROWS:-32} BATCHES=${BATCHES:-2}
case $FLAGS in *precision=bf16*) limits bf16 ;; *) limits fp32 ;; esac
if [ "$PEAK_TFLOPS" = 0 ] || [ -z "${MEMORY_TBS:-}" ]; then
    echo "$DEVICE is not in tests/gpu/device/devices.tsv: name one that is, or set PEAK_TFLOPS and MEMORY_TBS" >&2
    exit 2
fi
# shellcheck disable=SC2086
LIMITS_ONLY=yes PIANOLA_CUDA=$PWD/$DIR/layer_times.so timeout 400 "$PIANOLA" run schedules/serial.lua -D stages=1 -D batches="$BATCHES" \
    --model "$MODEL" $FLAGS -D context="$CONTEXT" -D rows="$ROWS" --steps 1 --json --device cuda >"$room/layers" 2>"$room/errors" || { cat "$room/errors" >&2; exit 1; }
echo "model      $MODEL $FLAGS; $ROWS sequences of $CONTEXT tokens a microbatch, $BATCHES microbatches a step"
echo "limits     $PEAK_TFLOPS TFLOP/s, $MEMORY_TBS TB/s $LIMITS"
echo "estimated  nothing here was measured; each layer moves each operand once"
echo
awk -F '\t' -v tokens=$((ROWS * CONTEXT * BATCHES)) -v t="$CONTEXT" -v peak="$PEAK_TFLOPS" -v batches="$BATCHES" "$count_model"'
    NR == 1 { printf "%-36s %-8s %5s %10s %10s %-6s %10s %7s\n", "layer", "way", "count", "GFLOP", "MB", "bound", "limit us", "share"; next }
    $2 == "step" || /^#/ { next }
    {
        times = $3 * ($2 == "update" ? 1 : batches)
        bound = $6 / (peak * 1e12) * 1e6 > $8 * 0.999 ? "FLOP" : "bytes"
        spent[bound] += $8 * times
        if ($1 ~ /^(gelu|fork|join) /) joined += $8 * times
        flop += $6 * times
        bytes += $7 * times
        printf "%-36s %-8s %5d %10.2f %10.2f %-6s %10.2f %6.1f%%\n", $1, $2, $3, $6 / 1e9, $7 / 1e6, bound, $8, 100 * $5
    }
    END {
        if (layers == "") exit 1
        printf "\nFLOPs and bytes    %.4g TFLOP, %.4g GB a step; %.4g FLOP a token, 6 N + 6 L C T with N = %d, L = %d, C = %d, T = %d\n",
            flop / 1e12, bytes / 1e9, token(), n, layers, width, t
        printf "layer by layer     %.3f ms a step, %.3f by FLOPs and %.3f by bytes; %.0f tokens/s, utilisation %.1f %%\n", alone / 1e3,
            spent["FLOP"] / 1e3, spent["bytes"] / 1e3, tokens / alone * 1e6, 100 * token() * tokens / alone / (peak * 1e6)
        alone -= joined
        printf "joined             %.3f ms a step, if gelu, fork and join take no time of their own; %.0f tokens/s, utilisation %.1f %%\n",
            alone / 1e3, tokens / alone * 1e6, 100 * token() * tokens / alone / (peak * 1e6)
    }' "$room/layers"
