#!/usr/bin/env bash
# Checks `pianola partition`: the results of the code of PipeDream's authors, schedules that run as fast as predicted,
# and errors. tests/unit/test_partition.c compares it with all possible partitions.
# shellcheck disable=SC2086 # options are several words
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
vgg=tests/search/partition/vgg16.txt

cut_up() { "$PIANOLA" partition "$@" 2>&1; }
# of KEY ARGS...: prints a figure to four digits, or a list. stages ARGS...: prints first-last:replicas of each stage.
of() { cut_up "${@:2}" --json | sed -nE "s/^  \"$1\": \[?([^]]*[^],])\]?,?$/\1/p;/error:/p" | awk '/^[0-9.e-]+$/ { $0 = sprintf("%.4g", $0) } 1'; }
stages() { cut_up "$@" --json | sed -nE 's/.*"first": ([0-9]+), "last": ([0-9]+), "replicas": ([0-9]+).*/\1-\2:\3/p;/error:/p' | paste -sd' '; }
# chain NAME LAYER...: writes a profile of layers "milliseconds activations weights" in a chain.
chain() {
    local file=$room/$1 i=0 layer
    shift
    for layer; do
        set -- $layer
        echo "l$((i += 1)) -- layer -- forward_compute_time=$1, backward_compute_time=0, activation_size=$2, parameter_size=$3"
    done >"$file"
    while ((--i > 0)); do printf '\tl%d -- l%d\n' $i $((i + 1)); done >>"$file"
}

# ---- VGG-16: the output of the authors' optimizer_graph_hierarchical.py for their profile ----

four="--profile $vgg --workers 4 --bandwidth 1e9 --sum"
eight="--profile $vgg --workers 8 --bandwidth 1.25e9 --sum"
expect "4 workers: 3-1" "0-14:3 15-39:1" "$(stages $four)"
expect "speedup over one worker" 3.827 "$(of speedup $four)"
expect "speedup over data parallelism" 3.319 "$(of speedup_over_data_parallel $four)"
expect "seconds" 0.1757 "$(of seconds $four)"
expect "NOAM" 2 "$(of noam $four)"
expect "8 workers, with transfers: 7-1" "0-23:7 24-39:1" "$(stages $eight --transfers)"
expect "speedup over one worker, with transfers" 6.669 "$(of speedup $eight --transfers)"
expect "speedup over data parallelism, with transfers" 2.754 "$(of speedup_over_data_parallel $eight --transfers)"
expect "8 workers, without transfers" 7.204 "$(of speedup $eight)"
# The paper's formula hides the smaller of computation and synchronization: 508.686 ms / 3.
expect "the larger of computation and synchronization: 3-1" "0-14:3 15-39:1 0.1696" \
    "$(stages ${four% --sum}) $(of seconds ${four% --sum})"

# ---- NOAM, warm-ups and versions (Harlap 2018, section 3.3) ----

chain equal.txt "1 1 1e9" "1 1 1e9" "1 1 1e9" "1 1 1e9"
equal="--profile $room/equal.txt --workers 4 --bandwidth 1e6"
expect "1-1-1-1" "0-0:1 1-1:1 2-2:1 3-3:1" "$(stages $equal)"
expect "1-1-1-1: NOAM, warm-ups, versions" "4; 3, 2, 1, 0; 4, 3, 2, 1" "$(of noam $equal); $(of warmups $equal); $(of versions $equal)"
chain most.txt "15 1 0" "1 1 1e9"
most="--profile $room/most.txt --workers 16 --bandwidth 1e6"
expect "15-1" "0-0:15 1-1:1" "$(stages $most)"
expect "15-1: NOAM, warm-ups, versions" "2; 1, 0; 2, 1" "$(of noam $most); $(of warmups $most); $(of versions $most)"

# ---- the formulas, worked out by hand ----

# One layer of 8 s and 100 bytes on 4 ranks at 10 bytes/s: 4 x 3/4 x 100 / 10 = 30 s through servers, half that in a
# ring.
chain one.txt "8000 1 100"
one="--profile $room/one.txt --workers 4 --bandwidth 10"
expect "by servers" 7.5 "$(of seconds $one --sync server)"
expect "by servers, the default" 7.5 "$(of seconds $one)"
expect "in a ring" 3.75 "$(of seconds $one --sync ring)"
expect "the sum of computation and synchronization" 5.75 "$(of seconds $one --sync ring --sum)"
# Two layers of 1 s: two stages take 1 s per minibatch, unless 30 bytes cross twice, in 2 x 30 / 10 s.
chain two.txt "1000 30 100" "1000 0 100"
two="--profile $room/two.txt --workers 2 --bandwidth 10"
expect "free transfers" "1 0-0:1 1-1:1" "$(of seconds $two) $(stages $two)"
expect "transfers" 6 "$(of seconds $two --transfers)"
# Two pairs of ranks, at 1000 bytes/s within a pair and 10 between them. Two stages of 1 s in each pair need
# 4 x 1/2 x 200 / 10 = 40 s for the pairs; one layer per pair takes max(1, 4 x 1/2 x 100 / 1000) / 2 = 0.5 s.
expect "levels" "0.5 0-0:2 1-1:2" "$(of seconds ${two%%--w*} --levels 2x1000,2x10) $(stages ${two%%--w*} --levels 2x1000,2x10)"
# The first of two stages keeps two minibatches: (30 + 100) x 2 bytes. One stage on both ranks keeps 230.
expect "just enough memory" "0-1:2" "$(stages $two --memory 230)"
expect "memory for two stages" "0-0:1 1-1:1" "$(stages $two --memory 260)"
expect "too little memory" "pianola: error: no partition of $room/two.txt fits into 229 bytes on each of 2 ranks: a stage keeps its weights, and its layers' activations, once per minibatch that it has at a time; give --memory or --workers more" \
    "$(cut_up $two --memory 229)"

# ---- a branch, an input, and outputs that no layer reads ----

layer() { echo "$1 -- $2 -- forward_compute_time=$3, backward_compute_time=0, activation_size=$4, parameter_size=1e9"; }
{
    layer in Input 100 1
    layer a split 1000 '[4; 6.5]'
    layer b left 1000 3
    layer c right 1000 5
    layer d join 1000 1
    layer e '__getitem__(1)' 100 1
    printf '\tin -- a\n\ta -- b\n\ta -- c\n\tb -- d\n\tc -- d\n\ta -- e\n'
} >"$room/branch.txt"
branch="--profile $room/branch.txt --workers 4 --bandwidth 10"
expect "a stage per layer" "0-0:1 1-1:1 2-2:1 3-3:1" "$(stages $branch)"
# Between b and c, the outputs of a and of one of them cross: 2 x (10.5 + 3) / 10.
expect "outputs that cross a cut" 2.7 "$(of seconds $branch --transfers | head -1)"

# ---- schedules ----

# Steady state: each further microbatch takes as long as the slowest stage computes.
more() { # SCRIPT FEW MANY
    awk -v a="$(figure makespan "$1" -D batches=$2)" -v b="$(figure makespan "$1" -D batches=$3)" -v n=$(($3 - $2)) \
        'BEGIN { printf "%.4g\n", (b - a) / n }'
}
cut_up $four -o "$room/four.lua" >/dev/null
expect "3-1 runs at the predicted speed" 0.1696 "$(more "$room/four.lua" 96 192)"
expect "as many live activations as versions" 2,2,2,1 "$(ranks peak_activations "$room/four.lua")"
cut_up $eight --transfers -o "$room/eight.lua" >/dev/null
expect "7-1 runs at the predicted speed" 0.08887 "$(more "$room/eight.lua" 28 56)"
expect "-o - writes only the script" "$(cat "$room/four.lua")" "$(cut_up $four -o -)"
for n in 2 3 5 6 7 9 12; do
    cut_up --profile $vgg --workers $n --bandwidth 1e9 -o "$room/n.lua" >/dev/null
    expect "$n workers verify" 0 "$("$PIANOLA" check "$room/n.lua" >/dev/null 2>&1; echo $?)"
done
cut_up $one -o "$room/one.lua" >/dev/null
expect "one stage on all ranks verifies" 0 "$("$PIANOLA" check "$room/one.lua" >/dev/null 2>&1; echo $?)"
cut_up --profile $vgg --levels 4x1e10,2x1e9 --transfers -o "$room/levels.lua" >/dev/null
expect "levels verify" 0 "$("$PIANOLA" check "$room/levels.lua" >/dev/null 2>&1; echo $?)"

# ---- one of our models ----

echo 'local p = params { cut = {} }
local layers, width = {}, { 64, 64, 8, 8, 8, 64 }
for i = 1, 6 do layers[i] = linear { width = width[i] } end
layers[7] = mse {}
return model { input = integers { features = 64, rows = 4 }, layers = layers, optimizer = sgd { lr = 0.125 },
  cut = #p.cut > 0 and p.cut or nil }' >"$room/model.lua"
echo 'return cluster { link = function() return 0, 1e6 end, flops = 1e6 }' >"$room/cluster.lua"
model="--model $room/model.lua --cluster $room/cluster.lua"
step() { figure makespan schedules/serial.lua $model -D batches=$1; }
expect "one rank's time equals the serial schedule's" "$(awk -v a="$(step 2)" -v b="$(step 3)" 'BEGIN { printf "%.4g\n", b - a }')" \
    "$(cut_up $model --workers 2 --json | awk -F'[:,]' '/"seconds"/ { s = $2 } /"speedup"/ { printf "%.4g\n", s * $2 }')"
# The written schedule, with the model cut as its comment says, on free links and one rank per stage. Updates take no
# time, as the partitioner assumes.
echo 'return cluster { flops = 1e6 }' >"$room/free.lua"
echo 'return cluster { flops = 1e6, stages = 3, cost = function(s, d) if d == "U" then return 0 end end }' >"$room/timed.lua"
apart="--model $room/model.lua --cluster $room/free.lua --workers 3 --bandwidth 1e4"
timed="--model $room/model.lua --cluster $room/timed.lua"
cut_up $apart -o "$room/model_3.lua" >/dev/null
cut=$(sed -nE 's/.*cut = \{ ([0-9, ]*) \}.*/\1/p' "$room/model_3.lua" | tr -d ' ')
few=$(figure makespan "$room/model_3.lua" $timed -D cut="$cut" -D batches=24)
many=$(figure makespan "$room/model_3.lua" $timed -D cut="$cut" -D batches=48)
expect "three stages of one rank take the predicted time, except for copies of weight versions" "3 yes" \
    "$(stages $apart | wc -w) $(awk -v a="$few" -v b="$many" -v says="$(of seconds $apart)" \
        'BEGIN { each = (b - a) / 24; print (each >= says * 0.999 && each < says * 1.05) ? "yes" : each " " says }')"
# Weights of a model with a shared token table equal the memory of one rank: 4 x 1/2 x |w| bytes per two minibatches
# through servers of two ranks.
gpt="--model schedules/models/gpt.lua -D tied=true"
expect "weights of a tied model" \
    "$(json schedules/serial.lua $gpt -D stages=1 | sed -nE 's/.*"at_peak": \{ "weights": ([0-9]+).*/\1/p')" \
    "$(cut_up $gpt --cluster schedules/clusters/nodes.lua --workers 2 --bandwidth 1 --json | awk -F'[:,]' '/"seconds"/ { s = $2 } /"speedup_over/ { printf "%.0f\n", s * $2 }')"
expect "the cluster's slowest link gives the bandwidth" "$(stages $model --workers 4 --bandwidth 1e6)" "$(stages $model --workers 4)"
expect "a model that is already cut" \
    "$room/model.lua:6: error: this model is already cut; to partition it, leave 'cut' out" \
    "$(cut_up $model --workers 2 -D cut=3 | head -1)"
echo 'return cluster { speed = function(rank) return rank == 0 and 4 or 1 end, flops = 1e6 }' >"$room/unequal.lua"
expect "a rank of four times the speed takes a quarter of the time" \
    "$(cut_up $model --workers 1 --json | awk -F'[:,]' '/"seconds"/ { printf "%.4g\n", $2 / 4 }')" \
    "$(of seconds --model "$room/model.lua" --cluster "$room/unequal.lua" --workers 1)"

# Without a cut, layers are divided by the ranks' speeds: a rank at half the speed of three others is busy for as long.
unequal() { "$PIANOLA" show schedules/1f1b.lua --model schedules/models/gpt.lua -D layers=24 -D rows=1 \
    --cluster schedules/clusters/unequal.lua -D flops=1e11 "$@" --json | sed -nE 's/^ +"busy": (.*),/\1/p'; }
expect "a slow rank has fewer layers" yes "$(unequal | awk '{ most = $1 > most ? $1 : most; least = NR == 1 || $1 < least ? $1 : least } END { print most < 1.1 * least ? "yes" : most " against " least }')"

# ---- a cost model: the same result as a profile, and its schedule runs as fast as predicted ----

# The profile of vgg16 as a cost model.
{
    echo 'local p = params { cut = {} } return model { cut = #p.cut > 0 and p.cut or nil, costs = {'
    grep -v '^#\|^images' $vgg | sed -nE 's/^([a-z0-9]+) -- .*forward_compute_time=(.*), backward_compute_time=(.*), activation_size=(.*), parameter_size=(.*)/{ name = "\1", forward = \2 \/ 1000, backward = \3 \/ 1000, activation = \4, weights = \5 },/p'
    echo '} }'
} >"$room/vgg.lua"
costs="--model $room/vgg.lua --workers 4 --bandwidth 1e9 --sum"
expect "costs: all 40 layers" 40 "$("$PIANOLA" partition $costs --json | sed -n 's/.*"layers": \([0-9]*\),/\1/p')"
for with in "" --transfers "--memory 12e9" "--sync ring"; do
    expect "costs and profile: the same $with" "$(stages $four $with) $(of seconds $four $with) $(of speedup_over_data_parallel $four $with)" \
        "$(stages $costs $with) $(of seconds $costs $with) $(of speedup_over_data_parallel $costs $with)"
done
cut_up $costs -o "$room/costs.lua" >/dev/null
cut=$(sed -nE 's/.*cut = \{ ([0-9, ]*) \}.*/\1/p' "$room/costs.lua" | tr -d ' ')
costs="--model $room/vgg.lua -D cut=$cut"
expect "3-1 of costs runs at the predicted speed" 0.1696 \
    "$(awk -v a="$(figure makespan "$room/costs.lua" $costs -D batches=96)" -v b="$(figure makespan "$room/costs.lua" $costs -D batches=192)" 'BEGIN { printf "%.4g\n", (b - a) / 96 }')"
expect "costs use the cluster's links" "$(stages --profile $vgg --workers 4 --bandwidth 1e6)" "$(stages --model "$room/vgg.lua" --cluster "$room/cluster.lua" --workers 4)"
expect "costs are not trained" "pianola: error: $room/vgg.lua: is a cost model, which has no layers to train; give one with layers, e.g. --model schedules/models/gpt.lua, or see the prediction: \`pianola show\`" \
    "$("$PIANOLA" run schedules/serial.lua --model "$room/vgg.lua" 2>&1)"
expect "costs are not compiled to programs" "pianola: error: $room/vgg.lua: is a cost model, which has no layers for the ranks' programs; give one with layers, or see \`pianola show --format streams\` none" \
    "$("$PIANOLA" compile schedules/serial.lua --model "$room/vgg.lua" -o "$room/out" 2>&1) $([ -e "$room/out" ] || echo none)"
expect "buckets of costs" 0 "$("$PIANOLA" check schedules/ddp.lua -D bucket=1000 --model "$room/vgg.lua" >/dev/null 2>&1; echo $?)"

# ---- 256 layers on 64 ranks ----

set --
for i in {1..256}; do set -- "$@" "$((i * 7919 % 97 + 1)) $((i * 104729 % 1009)) $((i * 7907 % 1013))000"; done
chain big.txt "$@"
expect "256 layers on 64 ranks within a minute" 0 \
    "$(timeout 60 "$PIANOLA" partition --profile "$room/big.txt" --workers 64 --bandwidth 1e9 >/dev/null; echo $?)"

# ---- errors ----

good="a -- x -- forward_compute_time=1, backward_compute_time=1, activation_size=1, parameter_size=1"
# refuse WHAT MESSAGE LINE...: expects the message for a profile of these lines.
refuse() {
    printf '%b\n' "${@:3}" >"$room/bad.txt"
    expect "$1" "$2" "$(cut_up --profile "$room/bad.txt" --workers 2 --bandwidth 1 | head -1)"
}
refuse "no layers" "pianola: error: $room/bad.txt: has no layers; a profile is PipeDream's graph.txt, a line per layer: node1 -- NAME -- forward_compute_time=..., ..." "# nothing"
refuse "no figures" "$room/bad.txt:2: error: expected a layer: node1 -- NAME -- forward_compute_time=..., backward_compute_time=..., activation_size=..., parameter_size=...; an edge begins with a tab" "$good" "b -- x"
refuse "a misspelt key" "$room/bad.txt:1: error: expected a key, as in forward_compute_time=1.5; did you mean 'activation_size'?" "${good/activation_size/activation_sice}"
refuse "a missing key" "$room/bad.txt:1: error: this layer has no parameter_size" "${good%,*}"
refuse "no number" "$room/bad.txt:1: error: expected a number from 0 to 1e100 here, in milliseconds or in bytes" "${good/time=1/time=fast}"
refuse "a negative number" "$room/bad.txt:1: error: expected a number from 0 to 1e100 here, in milliseconds or in bytes" "${good/time=1/time=-1}"
refuse "an infinite number" "$room/bad.txt:1: error: expected a number from 0 to 1e100 here, in milliseconds or in bytes" "${good/time=1/time=1e999}"
refuse "a torn list" "$room/bad.txt:1: error: expected ';' or ']' in this list of sizes" "${good/size=1/size=[1; 2}"
refuse "text after the last key" \
    "$room/bad.txt:1: error: expected ', ' and another figure, or the end of the line" "$good !"
refuse "a duplicate layer" "$room/bad.txt:2: error: there are two layers a" "$good" "$good"
refuse "an edge to nowhere" "$room/bad.txt:2: error: there is no layer b" "$good" '\ta -- b'
refuse "half an edge" "$room/bad.txt:2: error: expected an edge, such as node1 -- node2" "$good" '\ta'
refuse "an edge to itself" "$room/bad.txt:2: error: this edge leads from a layer to itself" "$good" '\ta -- a'
refuse "a cycle" "pianola: error: $room/bad.txt: its edges make a cycle, and layer a is on it or after it" "$good" "b${good#a}" '\ta -- b' '\tb -- a'
refuse "only inputs" "pianola: error: $room/bad.txt: all its layers are called Input" "${good/ x / Input }"
refuse "layers that take no time" "pianola: error: $room/bad.txt: its layers take no time at all, so there is nothing to divide" "${good//time=1/time=0}"
refuse "too many branches" "pianola: error: $room/bad.txt: its branches leave more than 2048 places for a cut; merge the layers of a branch into one, or give a block of branches as one layer" \
    "$good" {b..m}"${good#a}" '\ta -- '{b..m}
# Chains take time linear in their length. With equal layers, each rank gets the same number. A layer may also read
# layers other than its predecessor.
chain() { # LAYERS EDGE ...
    awk -v n="$1" -v rest="${good#a}" 'BEGIN {
        for (i = 1; i <= n; i++) print i rest
        for (i = 1; i < n; i++) print "\t" i " -- " i + 1
    }'
    printf '%b' "${@:2}"
}
for each in 512 5000 50000; do # layers per rank
    chain $((4 * each)) '\t1 -- 3\n' >"$room/chain.txt"
    expect "a chain of 4 x $each layers" "0-$((each - 1)):1 $each-$((2 * each - 1)):1 $((2 * each))-$((3 * each - 1)):1 $((3 * each))-$((4 * each - 1)):1" \
        "$(ulimit -t 20; stages --profile "$room/chain.txt" --workers 4 --bandwidth 1)"
done
chain 20000 | grep -v '^.7 -- 8$' >"$room/chain.txt"
expect "two chains" "pianola: error: $room/chain.txt: its branches leave more than 2048 places for a cut; merge the layers of a branch into one, or give a block of branches as one layer" \
    "$(ulimit -t 5; cut_up --profile "$room/chain.txt" --workers 2 --bandwidth 1 | head -1)"

fails() { expect "$1" "pianola: error: $2" "$(cut_up "${@:3}" | head -1)"; }
fails "no profile" "\`partition\` needs a --profile FILE or --model FILE.lua" --workers 2
fails "a profile and a model" \
    "\`partition\` needs either --profile FILE or --model FILE.lua, not both" --workers 2 --profile $vgg $model
fails "a file" "\`partition\` takes no file, but got '$vgg'; name a profile with --profile, a model with --model" $vgg
fails "no workers" "\`partition\` needs --workers N, or --levels such as 4x10e9,2x1.25e9" --profile $vgg
fails "no bandwidth" "without a cluster \`partition\` needs --bandwidth, in bytes per second, or --levels such as 4x10e9,2x1.25e9" --profile $vgg --workers 2
fails "too many workers" "--workers 5000: expected at most 1024" --profile $vgg --workers 5000 --bandwidth 1
fails "a number of workers beyond 32 bits" \
    "--workers 4294967298: expected at most 1024" --profile $vgg --workers 4294967298 --bandwidth 1
fails "bandwidth 0" "--bandwidth 0: expected bytes per second, such as 1e9" --profile $vgg --workers 2 --bandwidth 0
fails "a misspelt sync" "--sync rign: expected server or ring; did you mean ring?" --profile $vgg --sync rign
bad_level="expected the ranks in a group x the bandwidth between them in bytes per second, then the number of groups x the bandwidth between groups, such as 4x10e9,2x1.25e9"
for levels in 4 4x '4x1e9,' x1e9 0x1e9 4x0 4x1e9y; do
    fails "levels $levels" "--levels $levels: $bad_level" --profile $vgg --levels $levels
done
fails "too many ranks" "--levels 64x1,64x1: at most 8 levels and 1024 ranks" --profile $vgg --levels 64x1,64x1
fails "workers beside levels" "--workers 4: --levels 2x1,4x1 are 8 ranks; leave --workers out" --profile $vgg --levels 2x1,4x1 --workers 4
fails "bandwidth beside levels" "--bandwidth and --levels exclude each other: the levels have their own" --profile $vgg --levels 2x1,4x1 --bandwidth 1
fails "memory with levels" "--memory holds for one level of links: within a group it is not known how many ranks later stages have, and so how many minibatches a stage keeps; leave --memory out, or give --workers and --bandwidth" --profile $vgg --levels 2x1,4x1 --memory 1e9
fails "another command's memory" "--memory least: expected bytes, such as 1e9" $four --memory least
expect "a plan of memory" "pianola: error: --memory most: expected spare or least" "$("$PIANOLA" show schedules/1f1b.lua --memory most 2>&1)"
expect "a limit on memory" "pianola: error: schedules/1f1b.lua: rank 1 needs 8 bytes, 2 more than the cluster's memory of 6" \
    "$("$PIANOLA" show schedules/1f1b.lua --memory 6 2>&1 | cut -d: -f1-4)"
fails "a profile with a cluster" "--cluster goes with --model: a profile has its times, and --bandwidth says how fast links are" --profile $vgg --cluster "$room/cluster.lua"
fails "a profile with parameters" "-D batches=2: a profile has no parameters" --profile $vgg -D batches=2
fails "a model without a cluster" "for a model with layers, \`partition\` needs --cluster FILE.lua, whose flops convert FLOP to seconds" --model "$room/model.lua" --workers 2
echo 'return cluster {}' >"$room/slow.lua"
fails "a cluster without flops" "$room/slow.lua: has no flops, so layers take FLOP and links seconds; add flops, the FLOP per second of a rank" --model "$room/model.lua" --cluster "$room/slow.lua" --workers 2
fails "levels with unequal speeds" "--levels: rank 0 of the cluster has a speed of its own, but groups of ranks must be alike; give --workers and --bandwidth" --model "$room/model.lua" --cluster "$room/unequal.lua" --levels 2x1,2x1
finish
