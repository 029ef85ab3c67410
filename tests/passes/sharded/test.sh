#!/usr/bin/env bash
# Checks sharded weights, gradients and optimizer state: the literature's traffic, the fewest gathers, and each rank's
# memory.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
wide="--model schedules/models/integers.lua -D width=64" # 8 layers of 16 KiB: 128 KiB of weights, as much gradient
model=$((8 * 64 * 64 * 4))

# traffic SCHEDULE ARGS...: prints bytes received and sent by each rank, in units of the model; one pair if all ranks
# agree
traffic() {
    json "schedules/$1.lua" $wide "${@:2}" | awk -v model=$model '
        /error/ { print } /"bytes_(received|sent)":/ { sub(",", ""); printf "%s%s", $2 / model, /sent/ ? "\n" : " " }' | sort -u
}

# Rajbhandari 2020, "ZeRO", section 7, and Zhao 2023, "PyTorch FSDP", section 3.2.2, in units of the model, W = 16. A
# list of F ranks gathers twice and scatters once within itself, 3 (F - 1) / F. It sums shards with other lists, 2 (W /
# F - 1) / W. Weights that are not kept between forward and backward are gathered twice.
kept="-D slots=4 -D sums=4"
D16="-D workers=16 -D batches=16 -D slots=0"
expect "ddp" "1.875 1.875" "$(traffic ddp -D workers=16 -D batches=16)"
expect "zero1" "1.875 1.875" "$(traffic zero1 -D workers=16 -D batches=16)"
expect "zero2" "1.875 1.875" "$(traffic zero2 -D workers=16 -D batches=16)"
expect "hsdp, F = 1" "1.875 1.875" "$(traffic hsdp $D16 -D group=1)"
expect "hsdp, F = 2" "2.375 2.375" "$(traffic hsdp $D16 -D group=2)"
expect "hsdp, F = 4" "2.625 2.625" "$(traffic hsdp $D16 -D group=4)"
expect "hsdp, F = 8" "2.75 2.75" "$(traffic hsdp $D16 -D group=8)"
expect "hsdp, F = 16" "2.8125 2.8125" "$(traffic hsdp $D16 -D group=16)"
expect "fsdp" "2.8125 2.8125" "$(traffic fsdp $D16)"
for zero in 1 2; do
    expect "hsdp, F = 4, zero = $zero: the same bytes" "2.625 2.625" "$(traffic hsdp $D16 -D group=4 -D zero=$zero)"
done
# Four microbatches per rank: naively, each repeats all traffic. Breadth first keeps a gathered stage for all of them,
# which needs one gather and one reduction, and with room for all stages nothing else.
expect "fsdp, 4 microbatches per rank, nothing kept: 8 gathers, 1 reduction" "8.4375 8.4375" \
    "$(traffic fsdp -D workers=16 -D batches=64 -D slots=0)"
# DeepSpeed and FSDP also reduce after each microbatch by default: 3 A (W - 1) / W.
for A in 1 2 4; do
    expect "accumulate, nothing kept, A = $A" "$(awk -v A=$A 'BEGIN { v = 3 * A * 15 / 16; print v, v }')" \
        "$(traffic accumulate -D workers=16 -D batches=$((16 * A)) -D slots=0 -D sums=1)"
    expect "accumulate, all kept, A = $A" "1.875 1.875" "$(traffic accumulate -D workers=16 -D batches=$((16 * A)) $kept)"
done
expect "zero2, 2 microbatches per rank" "1.875 1.875" "$(traffic zero2 -D workers=16 -D batches=32)"
expect "zero2, summed after each microbatch: one more reduction" "2.8125 2.8125" "$(traffic zero2 -D workers=16 -D batches=32 -D sums=1)"
least() { ranks least_bytes "schedules/$1.lua" $wide -D batches=16 "${@:2}" | cut -d, -f1; }
expect "zero2 needs less memory than zero1 only if it sums after each microbatch" yes \
    "$([ "$(least zero2 -D sums=1)" -lt "$(least zero1)" ] && [ "$(least zero2)" -ge "$(least zero1)" ] && echo yes)"
for what in gathers reductions; do
    expect "1f1b_fsdp, 4 microbatches per rank: $what" 1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1 \
        "$(ranks $what schedules/1f1b_fsdp.lua -D workers=16 -D replicas=4 -D batches=16)"
done

# Stages 0 … S-1, then S-1 … 0, with k slots: 2 S - min(k, S) gathers, the minimum by Belady's rule
# (tests/unit/test_fetch.c compares with brute force).
for S in 1 3 4 8; do
    for k in 1 2 3 8; do
        least=$((2 * S - (k < S ? k : S)))
        expect "fsdp, $S stages, $k slots: gathers" "$least,$least,$least,$least" \
            "$(ranks gathers schedules/fsdp.lua -D workers=4 -D batches=4 -D stages=$S -D slots=$k)"
    done
done
# Lamy-Poirier 2022: breadth first with V chunks per rank gathers 2 V - 1 to V times, for any number of microbatches.
for V in 1 2 4; do
    for k in $(seq 1 $V); do
        for batches in 4 16; do
            least=$((2 * V - k))
            expect "breadth first, $V chunks, $k slots, $batches microbatches" "$least,$least,$least,$least" \
                "$(ranks gathers schedules/breadth_first_fsdp.lua -D chunks=$V -D slots=$k -D batches=$batches)"
        done
    done
done
expect "a list whose ranks run no jobs of the stage is gathered shard by shard" 7,7,7,7 \
    "$(ranks gathers tests/passes/sharded/elsewhere.lua)"

# The planned gathers are never slower than a fixed prefetch with as many slots. On slow links they are faster, because
# they are fewer. `compare` prints all three.
slow="--cluster schedules/clusters/latency.lua"
ahead() { # SCHEDULE ARGS...: prints the makespans as planned, one ahead and two ahead
    "$PIANOLA" compare "schedules/$1.lua" $slow "${@:2}" --json | sed -nE 's/.*"(makespan|one_ahead|two_ahead)": ([^,]*).*/\2/p' | paste -sd' '
}
for schedule in fsdp hsdp fsdp_whole 1f1b_fsdp breadth_first_fsdp; do
    for bandwidth in 0.25 0.5 1 2 4 8; do
        for slots in 2 3; do
            with="-D slots=$slots"
            case $schedule in fsdp_whole | 1f1b_fsdp) with= ;; esac
            got=$(ahead $schedule $with -D bandwidth=$bandwidth)
            expect "$schedule, bandwidth $bandwidth, $slots slots: $got" yes \
                "$(awk -v slots="${with: -1}" '{ print ($1 <= $2 && ($1 <= $3 || slots < 3)) ? "yes" : "no" }' <<<"$got")"
        done
    done
done
expect "fsdp on slow links, 4 slots: 3 of 7 gathers saved" "230 308 308" "$(ahead fsdp -D bandwidth=0.5 -D slots=4 -D batches=8)"
expect "hsdp" "130 136 136" "$(ahead hsdp -D bandwidth=0.5)"
nodes="--model schedules/models/gpt2.lua -D precision=bf16 --cluster schedules/clusters/nodes.lua -D devices=4 -D workers=8 -D batches=16"
expect "breadth_first_fsdp, GPT-2 on two nodes: 5 % shorter" "0.03994 0.04205 0.04204" "$("$PIANOLA" compare schedules/breadth_first_fsdp.lua $nodes --json |
    sed -nE 's/.*"(makespan|one_ahead|two_ahead)": ([^,]*).*/\2/p' | awk '{ printf "%s%.5f", (NR > 1 ? " " : ""), $1 }')"

# The cluster's memory limits how many stages are kept: 4 stages take 53 bytes, one takes 29.
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
echo 'local p = params { memory = 1e9 } return cluster { memory = p.memory }' >"$room/memory.lua"
in_memory() { ranks gathers schedules/fsdp.lua -D workers=8 -D slots=8 --cluster "$room/memory.lua" -D memory="$1" | cut -c1-100; }
expect "room for all stages" 4,4,4,4,4,4,4,4 "$(in_memory 53)"
expect "a byte less" 5,5,5,5,5,5,5,5 "$(in_memory 52)"
expect "room for one stage" 7,7,7,7,7,7,7,7 "$(in_memory 29)"
expect "room for no stage" "pianola: error: schedules/fsdp.lua: rank 0 needs 29 bytes, 1 more than the cluster's memory of 28: w" "$(in_memory 28)"

# Zhao 2023, "PyTorch FSDP", section 3.3: six layers in units {0,3}, {1,2}, {4,5}. PyTorch drops the last unit after the
# forward although the backward begins with it, so it gathers 5 times, 10 layers. Here a unit is a run of layers: stages
# [0] [1,2] [3] [4,5], in two slots of two layers as in PyTorch. The fewest bytes are 8 layers and keep [1,2]. Belady's
# rule counts gathers and would keep [3], which gives 9.
cat >"$room/units.lua" <<'EOF'
local layers = {}
for i = 1, 6 do layers[i] = linear { width = 64 } end
layers[7] = mse {}
return model { input = integers { features = 64, rows = 2 }, layers = layers, optimizer = sgd { lr = 0.01 }, cut = { 2, 4, 5 } }
EOF
layer=$((64 * 64 * 4 / 2)) # each rank holds one half
layers() { # FIGURE ARGS...: prints the figure for each of two ranks, in layers
    ranks "$1" schedules/fsdp.lua --model "$room/units.lua" -D workers=2 -D batches=2 --cluster "$room/memory.lua" "${@:2}" |
        awk -F, -v layer=$layer '{ print $1 / layer, $2 / layer }'
}
expect "three units: layers received" "8 8" "$(layers weights_bytes -D slots=2)"
expect "three units: lower bound" "8 8" "$(layers weights_bound -D slots=2)"
expect "three units, room for one stage: each but the last comes twice" "10 10" "$(layers weights_bytes -D slots=1)"
expect "three units, room for all" "6 6" "$(layers weights_bytes -D slots=4)"
# Four slots, but not the 237824 bytes they need.
expect "three units, memory short by one layer" "8 8" "$(layers weights_bytes -D slots=4 -D memory=221440)"
expect "three units, memory short by one layer: lower bound" "7 7" "$(layers weights_bound -D slots=4 -D memory=221440)"
expect "three units, memory short by two layers" "9 9" "$(layers weights_bytes -D slots=4 -D memory=205056)"
expect "three units, memory short by three layers" "9 9" "$(layers weights_bytes -D slots=4 -D memory=188672)"
expect "three units, hardly any memory" "10 10" "$(layers weights_bytes -D slots=4 -D memory=184576)"
expect "three units: prefetching two ahead needs more memory" \
    '"two_ahead": { "exposed_weights": null, "peak_bytes": 234240, "bytes_beyond_memory": 12800 }' \
    "$(json schedules/fsdp.lua --model "$room/units.lua" -D workers=2 -D batches=2 --cluster "$room/memory.lua" -D slots=4 \
        -D memory=221440 | sed -nE 's/^ *("two_ahead.*\}),$/\1/p' | sort -u)"

# The reported cost of a fixed prefetch equals its cost with --prefetch.
for schedule in fsdp 1f1b_fsdp fslpp; do
    for ahead in one two; do
        of=(schedules/$schedule.lua $slow -D bandwidth=0.5)
        expect "$schedule: $ahead ahead" "$(json "${of[@]}" --prefetch $ahead-ahead |
            sed -nE 's/.*"peak_bytes": ([0-9]*),/\1/p; s/.*"exposed".*"weights": ([0-9.]*),.*/\1/p' | paste -sd' ')" \
            "$(json "${of[@]}" | sed -nE "s/.*\"${ahead}_ahead\": \{ \"exposed_weights\": ([0-9.]*), \"peak_bytes\": ([0-9]*),.*/\2 \1/p" |
                paste -sd' ')"
    done
done

# A gradient in pieces on a slow network: the default number of pieces is as fast as any bucket, with the same bytes.
slowly="--model schedules/models/gpt2.lua --cluster schedules/clusters/nodes.lua -D devices=1 -D workers=4 -D batches=4 -D stages=1"
whole=$(figure makespan schedules/ddp.lua $slowly -D bucket=1000000000000)
best=$(figure makespan schedules/ddp.lua $slowly)
expect "ddp: pieces are hidden" yes "$(awk -v a="$best" -v b="$whole" 'BEGIN { print a < 0.9 * b ? "yes" : a " " b }')"
for bucket in 100000000 50000000 25000000 10000000 1000000; do
    other=$(figure makespan schedules/ddp.lua $slowly -D bucket=$bucket)
    expect "ddp, bucket $bucket: no faster ($other)" yes "$(awk -v a="$best" -v b="$other" 'BEGIN { print a <= b ? "yes" : a }')"
done
expect "ddp, 25 MB: 13 pieces for GPT-2, including the table's, and none for the loss" 15 "$(ranks reductions schedules/ddp.lua $slowly -D bucket=25000000 | cut -d, -f1)"

# All kinds of homes: any pieces and rounds move the same bytes and train to the bits of one rank.
weights() { "$PIANOLA" run "$@" $wide --steps 3 2>&1 | sed -nE 's/^weights +([0-9a-f]*) .*/\1/p;/error:/p'; }
sent() { json tests/passes/sharded/pieces.lua $wide "$@" | sed -nE 's/.*"bytes_sent": ([0-9]*),/\1/p;/error:/p' | paste -sd,; }
one=$(weights schedules/serial.lua -D stages=2)
for F in 0 1 2 4; do
    for zero in 0 1 2; do
        homes="-D F=$F -D zero=$zero"
        for with in "-D bucket=16384" "-D bucket=20000 -D split=true" "-D sums=1" "-D sums=1 -D bucket=30000"; do
            expect "F = $F, zero = $zero, $with: weights" "$one" "$(weights tests/passes/sharded/pieces.lua $homes $with)"
        done
        expect "F = $F, zero = $zero: pieces send the same bytes" "$(sent $homes)" "$(sent $homes -D bucket=16384)"
    done
done

# The weights that a rank holds, in units of the model's weights.
held() {
    json "schedules/$1.lua" $wide "${@:2}" | awk -v model=$model '/"at_peak"/ { gsub(/[,":]/, " ")
        for (i = 1; i < NF; i++) held[$i] = $(i + 1)
        print held["weights"] / model }' | sort -u | tr '\n' ' '
}
expect "ddp holds all weights" "1 " "$(held ddp)"
expect "zero2 holds all weights" "1 " "$(held zero2)"
expect "hsdp, F = 4, holds a quarter" "0.25 " "$(held hsdp)"
expect "fsdp holds an eighth" "0.125 " "$(held fsdp)"

finish
