#!/usr/bin/env bash
# Weights that travel from rank to rank: the traffic and memory of WeiPipe and TawPipe, and when they pay.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
model=$((8 * 64 * 64 * 4)) # integers.lua with width = 64: 8 layers of 16 KiB
wide="--model schedules/models/integers.lua -D width=64"
# traffic SCHEDULE ARGS...: prints bytes received by each rank, in units of the model; one figure if all ranks agree
traffic() {
    json "schedules/$1.lua" $wide "${@:2}" |
        awk -v model=$model '/error/ { print } /"bytes_received":/ { sub(",", ""); print $2 / model }' | sort -u | tr '\n' ' '
}
all() { # N VALUE: prints the value for N ranks
    yes "$2" | head -n "$1" | paste -sd,
}

# WeiPipe-Interleave (Lin 2025; forward_backward_step in weipipe.py of github.com/wuhouming/TawPipe). In each turn a
# rank receives two weights of 1/P of the model, for the forward of one microbatch and the backward of another. In P
# turns one microbatch passes both ways, and each rank is home to a stage that it need not receive. Without slots kept
# between turns, this makes 2 (P - 1) for each microbatch of a rank. Gradients return home once a step, from P - 1
# ranks.
for P in 2 4 8; do
    for turns in 1 2 3; do
        with="-D workers=$P -D stages=$P -D batches=$((P * turns)) -D slots=0"
        expect "weipipe, P = $P, $turns microbatches per rank: weights" "$(all $P $((2 * (P - 1) * turns)))" \
            "$(ranks weights_received schedules/weipipe.lua $with)"
        expect "weipipe, P = $P, $turns microbatches per rank: activations" "$(all $P 0)" \
            "$(ranks activations_received schedules/weipipe.lua $with)"
        expect "weipipe, P = $P, $turns microbatches per rank: models" \
            "$(awk -v P=$P -v n=$turns 'BEGIN { print (2 * n + 1) * (P - 1) / P }') " "$(traffic weipipe $with)"
    done
done
# Where one microbatch ends and the next begins, and in the middle of the model, two turns need the same two stages. Two
# slots keep these: fewer weights than two per turn.
expect "weipipe, two slots: fewer than two weights per turn" yes \
    "$(ranks weights_received schedules/weipipe.lua -D batches=32 | tr , '\n' | awk '$1 >= 2 * 3 * 8 { over = 1 } END { print NR == 4 && !over ? "yes" : "no" }')"
# Memory for others' stages at the peak, in units of the model: two stages, whatever the model's depth.
held() {
    json "schedules/$1.lua" $wide "${@:2}" | awk -v model=$model '/"at_peak"/ { gsub(/[,":]/, " ")
        for (i = 1; i < NF; i++) if ($i == "fetched") print $(i + 1) / model }' | sort -u | tail -n 1
}
for bandwidth in 1e9 1e12; do
    slow="--cluster schedules/clusters/latency.lua -D flops=1e12 -D bandwidth=$bandwidth"
    # A stage is padded to the pieces in which its gradient travels.
    expect "weipipe holds two stages of 8" 0.257812 "$(held weipipe -D workers=8 -D stages=8 -D batches=16 $slow)"
done

# TawPipe crosses between groups once for each group and use: S stages, forward and backward, to G - 1 groups, for each
# round of microbatches. A rank receives all stages but its own, as in WeiPipe.
crossings() { # GROUP ARGS...
    "$PIANOLA" show schedules/tawpipe.lua -dw -D group="$1" "${@:2}" | awk -v group="$1" '
        /^rank [0-9]+ lane/ { rank = $2 }
        /^FETCH/ && int($4 / group) != int(rank / group) { n++ }
        /^rank [0-9]+ lane gather/ { split($5, list, ",")
            for (i in list) if (int(list[i] / group) != int(rank / group)) print "a broadcast across groups" }
        END { print n + 0 }'
}
for group in 1 2 4 8; do
    with="-D workers=8 -D stages=8 -D batches=16 -D slots=0"
    expect "tawpipe, groups of $group: weights that cross" $((2 * 8 * (8 / group - 1) * 2)) "$(crossings $group $with)"
    expect "tawpipe, groups of $group: weights" "$(all 8 $((2 * 7 * 2)))" \
        "$(ranks weights_received schedules/tawpipe.lua -D group=$group $with)"
    expect "tawpipe, groups of $group: models" "4.375 " "$(traffic tawpipe -D group=$group $with)"
    expect "tawpipe, groups of $group: activations" "$(all 8 0)" \
        "$(ranks activations_received schedules/tawpipe.lua -D group=$group $with)"
done

# The motivation (Lin 2025, abstract): in long contexts, weights take fewer bytes than activations. A stage has 32 KiB.
# With 2,048 rows an activation has 512 KiB and travels for as long as a forward takes; with 16 rows it has 4 KiB.
ratio() { # ROWS: prints the makespan of 1F1B over the one of WeiPipe
    "$PIANOLA" compare schedules/{1f1b,weipipe}.lua --model schedules/models/integers.lua -D width=64 -D rows="$1" -D batches=16 \
        --cluster schedules/clusters/latency.lua -D flops=1e12 -D bandwidth=16e9 --json |
        sed -nE 's/.*"makespan": ([^,]*).*/\1/p' | paste -sd' ' | awk '{ printf "%.2f", $1 / $2 }'
}
expect "1F1B's makespan over WeiPipe's on slow links, activations 16 times as large as a stage's weights" \
    1.78 "$(ratio 2048)"
expect "activations an eighth as large as a stage's weights" 0.59 "$(ratio 16)"
finish
