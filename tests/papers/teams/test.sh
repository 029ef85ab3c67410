#!/usr/bin/env bash
# Checks teams against the figures of the literature, through the real command: the traffic, memory and time of a member
# for a transformer layer, and of schedules of teams. Expected values follow from the sizes here, not from the compiler.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
N=128 h=128 a=8 # rows x context of a microbatch, width, heads
gpt=(--model schedules/models/gpt.lua -D rows=4 -D context=32 -D "width=$h" -D "heads=$a")
sum_of() { awk -F'\t' -v op="$1" "\$1 == 0 && \$5 == op { n++; bytes += \$9 } END { print n + 0, bytes + 0 }"; }

# difference FUNCTION ARGS...: prints what one more transformer layer adds to each number that FUNCTION prints
difference() {
    paste -d' ' <("$1" -D layers=3 "${@:2}") <("$1" -D layers=2 "${@:2}") |
        awk '{ for (i = 1; i <= NF / 2; i++) printf "%s%.0f", (i > 1 ? " " : ""), $i - $(i + NF / 2); print "" }'
}
one() { echo schedules/tp.lua -D stages=1 -D tensor="$1" -D batches="$2"; }

# ---- exchanges ----

# Shoeybi 2019, "Megatron-LM", section 3: a layer has two all-reduces in the forward and two in the backward, each of
# all rows and columns (N h values of 4 bytes). In a ring, a member receives 2 (t - 1) / t of that. Recompute repeats
# the forward's.
exchanged() { "$PIANOLA" show "${gpt[@]}" "$@" --format tsv | sum_of ALL_REDUCE_A; }
received() { ranks bytes_received "${gpt[@]}" "$@" | cut -d, -f1; }
whole=$((4 * N * h))
for t in 2 4 8; do
    for batches in 1 3; do
        # shellcheck disable=SC2046
        expect "t = $t: all-reduces of a layer and $batches microbatches" "$((4 * batches)) $((4 * batches * whole))" \
            "$(difference exchanged $(one $t $batches))"
        # shellcheck disable=SC2046
        expect "t = $t: received" $((4 * batches * whole * 2 * (t - 1) / t)) "$(difference received $(one $t $batches))"
        # shellcheck disable=SC2046
        expect "t = $t: with recompute" "$((6 * batches)) $((6 * batches * whole))" \
            "$(difference exchanged $(one $t $batches) --recompute)"
    done
    for want in "F 2" "B 4"; do # parts of a job: one more than its exchanges, plus in a B one that hides each
        read -r d n <<<"$want"
        parts() { "$PIANOLA" show "${gpt[@]}" "$@" --format streams | grep -c "^$d 0.0 0\["; }
        # shellcheck disable=SC2046
        expect "t = $t: parts of a layer in the $d" "$n" "$(difference parts $(one $t 1))"
    done
done

# ---- memory ----

# Korthikanti 2022, "Reducing Activation Recomputation in Large Transformer Models", section 4.1, has s b h (10 + 24 /
# t) bytes a layer, of 2 bytes a value, besides the softmax. Of the 10, 2 are dropout masks, which no layer here has.
# Whole on each member are the inputs of two layernorms and of the two linear layers after them (8). Divided are
# queries, keys and values (6), attention outputs (2), and both sides of the gelu, with 4 h columns (8 + 8). Ours adds
# two numbers per row for each layernorm, and one per row and head, because attention keeps no square of scores. All of
# ours have 4 bytes.
stash() { "$PIANOLA" show "${gpt[@]}" "$@" --json | sed -nE 's/.*at_peak.*"stash": ([0-9]+).*/\1/p' | head -n 1; }
for t in 1 2 4 8; do
    ours=$((2 * 2 * 4 * N + 4 * N * a / t))
    # shellcheck disable=SC2046
    expect "t = $t, bf16: stash of a layer" $((N * (8 * h + 24 * h / t) + ours)) \
        "$(difference stash $(one $t 1) -D precision=bf16)"
    # shellcheck disable=SC2046
    expect "t = $t, fp32: stash of a layer" $((2 * N * (8 * h + 24 * h / t) + ours)) "$(difference stash $(one $t 1))"
done

# Weights: 12 h^2 + 13 h a layer. Two layernorms (4 h) are whole, and the biases of the two linear layers that sum (2
# h).
weights() { "$PIANOLA" show "${gpt[@]}" "$@" --json | sed -nE 's/.*"weights": ([0-9]+), "gradients.*/\1/p' | head -n 1; }
for t in 1 2 4 8; do
    # shellcheck disable=SC2046
    expect "t = $t: weights of a layer" $((4 * ((12 * h * h + 7 * h) / t + 6 * h))) "$(difference weights $(one $t 1))"
done

# ---- time ----

# On free links a member takes 1/t of a layer's time, except for the whole parts. These are two layernorms (8, 10 and 5
# operations a value in F, I and W), two biases after the sums (1 and 1), and adding and branching the residual (1 and
# 1).
each() { # MICROBATCHES: prints the time of one more microbatch
    paste -d' ' <(figure makespan "$@" -D batches=3) <(figure makespan "$@" -D batches=2) |
        awk '{ printf "%.0f\n", $1 - $2 }'
}
undivided=$((N * h * 2 * (8 + 10 + 5 + 1 + 1 + 1 + 1)))
alone=$(difference each "${gpt[@]}" schedules/tp.lua -D stages=1 -D tensor=1)
for t in 2 4 8; do
    expect "t = $t: time of a layer" $(((alone - undivided) / t + undivided)) \
        "$(difference each "${gpt[@]}" schedules/tp.lua -D stages=1 -D tensor=$t)"
done
# A model whose layers are all divided, except the loss, is t times as fast.
halves=(--model schedules/models/integers.lua -D layers=2 -D width=64 -D rows=8)
loss=$((5 * 8 * 64)) # operations
unsplit=$(each "${halves[@]}" schedules/tp.lua -D stages=1 -D tensor=1)
for t in 2 4 8; do
    expect "integers, t = $t" $(((unsplit - loss) / t + loss)) "$(each "${halves[@]}" schedules/tp.lua -D stages=1 -D tensor=$t)"
done

# ---- by rows ----

# Korthikanti 2022, section 4.2.2: a reduce-scatter and an all-gather replace each all-reduce with the same bytes, four
# of each per layer. The two linear layers with divided inputs gather them again for their weight gradients: two more
# all-gathers, which belong to W in a split backward.
rows=(-D parallel=sequence)
pieces() { "$PIANOLA" show "${gpt[@]}" "${rows[@]}" "$@" --format tsv | sum_of "$op"; }
again() { # prints the all-gathers in the W of microbatch 0
    "$PIANOLA" show "${gpt[@]}" "${rows[@]}" "$@" --format streams | sed -nE 's/^team 0 of .* W //p' | grep -o gather | wc -l
}
received_by_rows() { received "${rows[@]}" "$@"; }
weights_by_rows() { weights "${rows[@]}" "$@"; }
stash_by_rows() { stash "${rows[@]}" "$@"; }
for t in 2 4 8; do
    for batches in 1 3; do
        for want in "ALL_GATHER_A 6" "REDUCE_SCATTER_A 4"; do
            read -r op n <<<"$want"
            # shellcheck disable=SC2046
            expect "t = $t, by rows: $op of a layer and $batches microbatches" \
                "$((n * batches)) $((n * batches * whole / t))" "$(difference pieces $(one $t $batches))"
        done
        # shellcheck disable=SC2046
        expect "t = $t, by rows: bytes received, including gathers for weight gradients and sums of 6 h shared parameters" \
            \
            $((10 * batches * whole * (t - 1) / t + 2 * 4 * 6 * h * (t - 1) / t)) \
            "$(difference received_by_rows $(one $t $batches))"
        # shellcheck disable=SC2046
        expect "t = $t, by rows: without those, as many bytes as by columns" \
            "$(difference received $(one $t $batches))" $((8 * batches * whole * (t - 1) / t))
    done
    # shellcheck disable=SC2046
    expect "t = $t, by rows: gathers for weight gradients" 2 "$(difference again $(one $t 1))"
done
# Nothing is whole. Of s b h (34 + 5 a s / h) / t (the paper's section 4.2.2), the layer has the 32 without dropout
# masks, and one number per row and head instead of the scores.
for t in 1 2 4 8; do
    # shellcheck disable=SC2046
    expect "t = $t, by rows, bf16: stash of a layer" $((N * (32 * h + 16 + 4 * a) / t)) \
        "$(difference stash_by_rows $(one $t 1) -D precision=bf16)"
    # shellcheck disable=SC2046
    expect "t = $t, by rows, fp32: stash of a layer" $((N * (64 * h + 16 + 4 * a) / t)) \
        "$(difference stash_by_rows $(one $t 1))"
    # shellcheck disable=SC2046
    expect "t = $t, by rows: weights of a layer" $((4 * ((12 * h * h + 7 * h) / t + 6 * h))) \
        "$(difference weights_by_rows $(one $t 1))"
    expect "t = $t, by rows: time of a layer" $((alone / t)) \
        "$(difference each "${gpt[@]}" "${rows[@]}" schedules/tp.lua -D stages=1 -D tensor=$t)"
done

# ---- schedules ----

# Teams in place of ranks: the same times, peaks and bubbles for jobs of the same cost.
same() { # TEAMS' SCHEDULE of 2, RANKS' SCHEDULE
    for f in makespan bubble; do
        # shellcheck disable=SC2086
        expect "$1 is $2: $f" "$(figure $f $2)" "$(figure $f $1)"
    done
    # shellcheck disable=SC2086
    expect "$1 is $2: live" "$(ranks peak_activations $2)" "$(ranks peak_activations $1 | tr , '\n' | sed -n 'p;n' | paste -sd,)"
}
same schedules/tp_1f1b.lua schedules/1f1b.lua
same schedules/tp_zbv.lua schedules/zbv.lua
same "schedules/experts.lua -D workers=8" schedules/dualpipev.lua
same "schedules/tp_zbv.lua -D workers=16 -D batches=20" "schedules/zbv.lua -D workers=8 -D batches=20"
same "schedules/dp_tp_pp.lua -D workers=16" "schedules/1f1b_ddp.lua -D workers=8"
same "schedules/dp_tp_pp.lua -D workers=16 -D data=1 -D split=true" "schedules/2bp.lua -D workers=8"
same "schedules/fsdp_tp.lua -D workers=16" "schedules/fsdp.lua -D workers=8"
for schedule in 1f1b zb_h1 zbv interleaved gpipe; do
    same "schedules/$schedule.lua -D tensor=2" "schedules/$schedule.lua"
done

# Three dimensions, also with 2BP (Rae 2024, figure 1: 1F1B-1 has M = P, 1F1B-2 M = 2 P). Each of D replicas is a
# pipeline of P teams of t, and runs M of the D M microbatches.
for size in 1/1/4/4 2/2/4/4 2/4/4/8 4/2/2/2 3/2/5/10; do
    IFS=/ read -r D t P M <<<"$size"
    three=(schedules/dp_tp_pp.lua -D workers=$((D * t * P)) -D "data=$D" -D "tensor=$t" -D batches=$((D * M)))
    expect "3D, D = $D, t = $t, P = $P, M = $M" $((3 * M + 3 * (P - 1))) "$(figure makespan "${three[@]}")"
    for zero in 0 2; do
        expect "the same with 2BP, zero = $zero" $((3 * M + P - 1)) \
            "$(figure makespan "${three[@]}" -D split=true -D zero=$zero)"
    done
    expect "2BP keeps all M activations" "$M" "$(ranks peak_activations "${three[@]}" -D split=true | tr , '\n' | sort -u | paste -sd,)"
done

# FSDP between teams gathers 1/t of the weights: integers.lua has no whole weights.
gathered() { "$PIANOLA" show "$@" --model schedules/models/integers.lua --format tsv | sum_of ALL_GATHER; }
read -r n bytes <<<"$(gathered schedules/fsdp.lua -D workers=4)"
expect "fsdp_tp: number of gathers, with half of the bytes" \
    "$n $((bytes / 2))" "$(gathered schedules/fsdp_tp.lua -D workers=8)"

# Yeung 2024: the output layer has no bubble of its own. With unit costs each rank computes 2 (F + B) a microbatch, and
# the pipeline fills and drains as 1F1B does: 2 M (F + B) + (P - 1) (F + B).
for want in 4/8 8/32 2/5; do
    P=${want%/*} M=${want#*/}
    expect "vocab_parallel, $P ranks, $M microbatches" $((6 * M + 3 * (P - 1))) \
        "$(figure makespan schedules/vocab_parallel.lua -D workers="$P" -D batches="$M")"
done
finish
