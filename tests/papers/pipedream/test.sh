#!/usr/bin/env bash
# Prints PipeDream's published tables beside the partitioner's predictions. These come from cost models, which know
# only layer shapes and one throughput. Asserts what holds on any machines: the order, the stage configurations that
# follow from the weights alone, and the bytes of the authors' profiles.
#
# Why predictions and publications differ:
# - Data parallelism hides a part of its synchronization behind computation. One column hides all of it, the other
#   (`--sum`) none.
# - Publications time epochs, with the input pipeline, stragglers and the framework. Predictions time the slowest stage,
#   on links at nominal speed. A pipeline of 16 machines reached 9.86 of 16 (2018), which no such model explains.
# - The models' times are FLOP over one throughput. In the authors' profile of VGG-16, the first convolution has few
#   FLOP for its bytes and takes 20 times that long, the second twice that long. The others take less.
# - Cluster A of 2019 has PCIe within a server, B NVLink. The flat links here are those between servers; 10 GB/s within
#   one is assumed. GNMT's embeddings, a quarter of its weights, are synchronized whole, though a minibatch has few
#   words.
# - Nothing is tuned for agreement: models and clusters are the papers', and the throughput is a published measurement.
#   ellcheck disable=SC2086 # options are several words
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
models=schedules/models

# plan MODEL OPTIONS...: sets stages, such as 7-1, first (the layers of the first stage), speedup over one machine,
# speedup over data parallelism, and the bytes saved relative to data parallelism through servers, in percent
plan() {
    local json
    json=$("$PIANOLA" partition --model "$models/$1.lua" "${@:2}" --json 2>&1) || echo "$json"
    stages=$(sed -nE 's/.*"replicas": ([0-9]+).*/\1/p' <<<"$json" | paste -sd-)
    pipedream=$(sed -nE 's/^  "speedup": ([^,]*),/\1/p' <<<"$json")
    gain=$(sed -nE 's/^  "speedup_over_data_parallel": ([^,]*),/\1/p' <<<"$json")
    parallel=$(awk "BEGIN { print $pipedream / $gain }")
    # Per minibatch: 4 (m-1)/m of the weights of each stage on m machines, and an activation and its gradient at each
    # cut.
    saved=$(sed -nE 's/.*"replicas": ([0-9]+),.*"weights": ([^,]*), "output": ([^,]*),.*/\1 \2 \3/p' <<<"$json" | awk '
        { m += $1; all += $2; bytes += 4 * ($1 - 1) / $1 * $2 + 2 * $3 }
        END { printf "%.0f", 100 * (1 - bytes / (4 * (m - 1) / m * all)) }')
}
# holds WHAT CONDITION: asserts a condition of awk
holds() { expect "$1 ($2)" yes "$(awk "BEGIN { print ($2) ? \"yes\" : \"no\" }")"; }

# ---- VGG-16 on cluster A of Harlap 2018: one Titan X per machine, 25 Gb/s Ethernet, 32 images ----

titan="-D batch=32 -D flops=11.5e12 --bandwidth 3.125e9"
printf '%-9s  %-23s  %-43s  %s\n' "VGG-16" "data parallelism" "PipeDream, times one machine" "bytes saved"
printf '%-9s  %9s %6s %6s  %17s %12s %12s  %9s %6s\n' "machines" published sum max published sum max published max
# MACHINES PUBLISHED: data parallelism, PipeDream, its stages, bytes saved
before=0
while read -r machines published_parallel published published_stages published_saved; do
    plan vgg16 $titan --workers "$machines" --sum --transfers
    sum="$parallel $pipedream $stages" gap="($pipedream - $parallel)"
    holds "$machines machines: PipeDream > data parallelism > one" "$pipedream > $parallel && $parallel > 1"
    plan vgg16 $titan --workers "$machines" --transfers
    holds "$machines machines, all hidden: PipeDream is no slower than data parallelism, that than one" "$gain >= 1 - 1e-9 && $parallel > 1"
    read -r sum_parallel sum_pipedream sum_stages <<<"$sum"
    LC_ALL=C printf '%9d  %9.2f %6.2f %6.2f  %5.2f %-11s %5.2f %-7s %5.2f %-7s %8d %% %4d %%\n' "$machines" "$published_parallel" \
        "$sum_parallel" "$parallel" "$published" "$published_stages" "$sum_pipedream" "$sum_stages" "$pipedream" "$stages" "$published_saved" "$saved"
    holds "$machines machines: the gap grows" "$gap > $before"
    before=$gap
    [ "$machines" != 8 ] || expect "8 machines: the published configuration" 7-1 "$stages"
    [ "$machines" = 4 ] || holds "$machines machines: most bytes are saved" "$saved > 85"
done <<'TABLE'
4 1.47 3.14 2-1-1 90
8 2.35 7.04 7-1 95
16 3.28 9.86 9-5-1-1 91
TABLE

# ---- Narayanan 2019: V100 servers, 10 Gb/s (A) or 25 Gb/s (B) between them, the paper's minibatches per GPU ----

printf '\n%-9s %-7s  %-30s  %s\n' model GPUs "times data parallelism" "stages"
printf '%-9s %-7s  %9s %9s %9s  %-9s %s\n' "" "" published sum max published "sum; max"
before=0
while read -r model machines bandwidth cluster published published_stages options; do
    links="--workers $machines --bandwidth $bandwidth --sync ring --transfers"
    plan "$model" $options $links
    max=$gain max_stages=$stages
    plan "$model" $options $links --sum
    name=$model
    [ -z "$options" ] || name=gnmt8
    LC_ALL=C printf '%-9s %2d (%s)  %9.2f %9.2f %9.2f  %-9s %s; %s\n' $name "$machines" "$cluster" "$published" "$gain" "$max" "$published_stages" "$stages" "$max_stages"
    case $name in
    resnet50)
        expect "ResNet-50, $cluster: data parallelism" "16 1" "$stages $gain"
        expect "ResNet-50, $cluster, all hidden: data parallelism" "16 1" "$max_stages $max"
        ;;
    *) holds "$name, $machines ($cluster): no slower than data parallelism" "$gain > 1 && $max >= 1 - 1e-9" ;;
    esac
    case $name$machines$cluster in
    vgg1616A | vgg1616B | alexnet16A) expect "$name, $cluster: the published configuration" "$published_stages" "$stages" ;;
    gnmt164A) expect "GNMT-16 in one server: a straight pipeline" 1-1-1-1 "$stages" ;;
    esac
    [ "$name$cluster" != vgg16B ] || holds "VGG-16 gains less on the faster network" "$gain < $slower"
    slower=$gain
done <<'TABLE'
vgg16 16 1.25e9 A 5.28 15-1
vgg16 16 3.125e9 B 2.98 15-1
alexnet 16 1.25e9 A 4.92 15-1
alexnet 16 3.125e9 B 2.04 15-1
resnet50 16 1.25e9 A 1 16
resnet50 16 3.125e9 B 1 16
gnmt16 4 1e10 A 1.46 straight
gnmt16 16 1.25e9 A 2.34 straight
gnmt16 16 3.125e9 B 3.14 straight
gnmt16 4 1e10 A 1.5 straight -D layers=8 -D flops=13.2e12
gnmt16 12 1.25e9 A 2.95 straight -D layers=8 -D flops=13.2e12
gnmt16 16 3.125e9 B 1 16 -D layers=8 -D flops=13.2e12
TABLE

# ---- the models beside the authors' profiles: minibatches of 128, 256, 128 and 128 ----

# costs MODEL LAYERS OPTIONS...: prints bytes of the weights and output of each layer, each on its own rank
costs() {
    local one="schedules/1f1b.lua -D workers=$2 -D batches=1 --model $models/$1.lua ${*:3}"
    paste -d' ' <("$PIANOLA" show $one --json | sed -nE 's/.*"at_peak": \{ "weights": ([0-9]+),.*/\1/p') \
        <("$PIANOLA" show $one --format tsv | awk -F'\t' '$5 == "SEND_F" { bytes[$6] = $9 } END { for (s = 0; s in bytes; s++) print bytes[s] }')
}
total() { costs "$@" | awk '{ n += $1 } END { printf "%d\n", n }'; }
# Our convolution is a convolution of theirs and its ReLU, which has no weights and an output of the same size.
theirs=$(sed -nE 's/^(conv|full|pool)([0-9]+) -- .*activation_size=([0-9]+), parameter_size=([0-9]+)/\4 \3/p' tests/search/partition/vgg16.txt)
expect "VGG-16: weights and outputs of every layer" "$(sed '$s/ .*/ /' <<<"$theirs")" "$(costs vgg16 21 -D batch=128)"
# Sums of parameter_size in profiler/image_classification/profiles/{alexnet,resnet50} and
# translation/profiles/{gnmt_large,gnmt}.
expect "AlexNet: weights" 244403360 "$(total alexnet 11)"
expect "ResNet-50: weights" 102228128 "$(total resnet50 20)"
expect "GNMT-16: weights" 1110870272 "$(total gnmt16 19)"
expect "GNMT-8: weights" 775063808 "$(total gnmt16 11 -D layers=8)"
expect "GNMT-16: an encoder's output" 13107200 "$(costs gnmt16 19 -D batch=128 | sed -n '6s/.* //p')"
# Each throughput is calibrated, to 1 %, on its model's profile and on the published time of a Titan X.
took() { "$PIANOLA" show schedules/serial.lua -D stages=1 -D batches=1 --model "$models/$1.lua" "${@:2}" --json | sed -nE 's/^  "makespan": (.*),/\1/p'; }
while read -r seconds model options; do
    holds "$model takes what its profile says" "($(took "$model" $options)) / $seconds > 0.99 && ($(took "$model" $options)) / $seconds < 1.01"
done <<'TABLE'
0.672535 vgg16 -D batch=128
0.12862 vgg16 -D batch=16 -D flops=11.5e12
0.085321 alexnet -D batch=256
0.443419 resnet50 -D batch=128
0.520453 gnmt16 -D batch=128
0.089416 gnmt16 -D layers=8 -D batch=32 -D length=48 -D flops=13.2e12
TABLE

# ---- the same as schedules: `compare` of PipeDream, with the partitioner's stages, and bulk synchronous steps ----

# These include what the formulas leave out: filling the pipeline, in-flight microbatches that may or may not hide
# transfers, and gradients that travel in a ring during the backwards of earlier stages. The baseline of 2018 used
# servers.
one=$(took vgg16 -D batch=32 -D flops=11.5e12)
printf '\n%-9s %-7s %-7s  %-21s  %-21s  %s\n' VGG-16 stages cut "data parallelism" PipeDream "bytes saved"
printf '%-9s %-7s %-7s  %10s %10s  %10s %10s  %9s %9s\n' machines "" "" published predicted published predicted published predicted
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
before=0 batches=1680
while read -r machines published_parallel published published_saved; do
    plan vgg16 $titan --workers "$machines" --transfers -o "$room/stages.lua"
    cut=$(sed -nE 's/.*cut = \{ ([0-9, ]*) \}.*/\1/p' "$room/stages.lua" | tr -d ' ')
    of="-D replicas=${stages//-/,} -D stages=$(tr - '\n' <<<"$stages" | wc -l) -D cut=$cut -D batches=$batches -D batch=32 -D flops=11.5e12"
    read -r pipedream parallel saved < <("$PIANOLA" compare schedules/pipedream.lua schedules/bsp.lua $of --model $models/vgg16.lua \
        --cluster schedules/clusters/latency.lua -D bandwidth=3.125e9 --json |
        sed -nE 's/^      "(makespan|bytes_sent)": (.*),/\2/p' | paste -sd' ' |
        awk -v all="$(awk "BEGIN { print $one * $batches }")" '{ print all / $1, all / $3, 100 * (1 - $2 / $4) }')
    holds "$machines machines, compared: PipeDream > data parallelism > one" "${pipedream:-0} > ${parallel:-0} && ${parallel:-0} > 1"
    holds "$machines machines, compared: the gap grows" "${pipedream:-0} - ${parallel:-0} > $before"
    holds "$machines machines, compared: most bytes are saved" "${saved:-0} > 70"
    before="(${pipedream:-0} - ${parallel:-0})"
    LC_ALL=C printf '%9d %-7s %-7s  %10.2f %10.2f  %10.2f %10.2f  %7d %% %7.0f %%\n' "$machines" "$stages" "$cut" "$published_parallel" \
        "$parallel" "$published" "$pipedream" "$published_saved" "$saved"
done <<'TABLE'
4 1.47 3.14 90
8 2.35 7.04 95
16 3.28 9.86 91
TABLE
finish
