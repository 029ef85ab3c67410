#!/usr/bin/env bash
# Checks `pianola profile`: all its output forms give the partitioner the same results, and its times add up to the
# steps of `run`. Durations depend on the machine, so times are only compared with each other.
# shellcheck disable=SC2086 # options are several words
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT

profile() { timeout 120 "$PIANOLA" profile "$@" 2>&1; }
of() { sed -nE "s/^  \"$1\": ([^,]*),?$/\1/p" "$room/json"; }
# layers FIELD: prints that field of each layer, separated by commas
layers() { sed -nE "s/^    .*\"$1\": \"?([^,\"}]*)\"?[,}].*/\1/p" "$room/json" | paste -sd,; }
# stages ARGS...: prints first-last:replicas of each stage, and the time, to six digits
stages() {
    "$PIANOLA" partition "$@" --workers 4 --bandwidth 1e7 --json 2>&1 |
        sed -nE 's/.*"first": ([0-9]+), "last": ([0-9]+), "replicas": ([0-9]+).*/\1-\2:\3/p;s/^  "seconds": (.*),/\1/p;/error:/p' |
        awk '/^[0-9.e-]+$/ { $0 = sprintf("%.6g", $0) } 1' | paste -sd' '
}
gpt="--model schedules/models/gpt.lua -D width=64 -D layers=2"

# ---- one measurement in two forms each ----

profile $gpt -o "$room/graph.txt" --fit "$room/fit.lua" >"$room/table"
expect "exit code" 0 $?
with="$gpt --cluster $room/fit.lua"
expect "graph and cluster: the same partition" "$(stages $with)" "$(stages --profile "$room/graph.txt")"
expect "the partition has stages" yes "$(stages $with | grep -q '^[0-9.e-]* 0-.*:[1-4]' && echo yes)"
profile $gpt -o "$room/costs.lua" --fit "$room/fit.lua" --json >"$room/json"
for more in "" --sum --transfers "--memory 4e6" "--sync ring"; do
    expect "costs and cluster: the same partition $more" "$(stages $with $more)" "$(stages --model "$room/costs.lua" $more)"
done
# A schedule with one stage per layer, from either form: a forward and a backward each, and no updates in a model of
# costs.
units=$(layers kind | tr , '\n' | wc -l)
expect "units" 8 "$units"
sum=$({ layers forward; layers backward; } | tr , '\n' | awk '{ t += $1 } END { printf "%.4g", t }')
expect "a microbatch on one rank" "$sum" "$(figure makespan schedules/serial.lua -D stages="$units" -D batches=1 --model "$room/costs.lua" | awk '{ printf "%.4g", $1 }')"
"$PIANOLA" check schedules/1f1b.lua -D workers=3 --model "$room/costs.lua" >"$room/out" 2>&1
expect "the schedule is proved ($(cat "$room/out"))" 0 $?
expect "-o - writes only the costs" "return model {" "$(profile $gpt --microbatches 1 --warm-up 0 -o - | grep ^return)"

# ---- measured values ----

expect "kinds" embedding,residual,residual,residual,residual,layernorm,linear,cross_entropy "$(layers kind)"
expect "bytes of activations" "65536,65536,65536,65536,65536,65536,262144,0" "$(layers activation)"
expect "microbatches" "64 8" "$(of microbatches) $(of step_microbatches)"
expect "every layer takes time" "" "$({ layers forward; layers backward; } | tr , '\n' | awk '!($1 > 0)')"
# The weights equal the weights after training on one rank.
expect "bytes of weights" "$(json schedules/serial.lua $gpt -D stages=1 | sed -nE 's/.*"at_peak": \{ "weights": ([0-9]+).*/\1/p')" \
    "$(layers weights | tr , '\n' | awk '{ t += $1 } END { print t }')"
profile $gpt --microbatches 3 --warm-up 0 --json >"$room/json"
expect "3 microbatches" "3 3" "$(of microbatches) $(of step_microbatches)"
profile $gpt -D tied=true --microbatches 10 --json >"$room/json"
expect "10 microbatches are two steps" "16 8" "$(of microbatches) $(of step_microbatches)"
# 1024 times the work takes much longer.
echo 'local layers = { linear { width = 1024 }, linear { width = 1024 }, linear { width = 1 }, linear { width = 1 }, linear { width = 128 }, mse {} }
return model { input = integers { features = 128, rows = 32 }, layers = layers, optimizer = sgd { lr = 0.125 } }' >"$room/wide.lua"
profile --model "$room/wide.lua" --json >"$room/json"
expect "the wide layer takes the most" "2 2" "$(for of in forward backward; do layers $of | tr , '\n' | awk '($1 > most) { most = $1; at = NR } END { print at }'; done | paste -sd' ')"
expect "the wide layer takes far longer than a narrow one" \
    yes "$(layers forward | awk -F, '{ print ($2 > 20 * $4 ? "yes" : $0) }')"

# ---- a step of `run` ----

# The times add up to the step in which they were taken, and to a step of `run` within a factor of 3 on a busy machine.
profile $gpt -D width=128 --json >"$room/json"
step=$("$PIANOLA" run schedules/serial.lua -D stages=8 -D batches=8 $gpt -D width=128 --steps 9 --json 2>/dev/null | sed -nE 's/.*"makespan_measured": ([^,]*).*/\1/p')
awk -v sum="$(of step_sum)" -v own="$(of step_seconds)" -v run="$step" 'BEGIN {
    printf "sum of the times %.4g s, their own steps %.4g s (%+.1f %%), a step of run %.4g s (%+.1f %%)\n", sum, own, 100 * (sum / own - 1), run, 100 * (sum / run - 1)
    exit !(sum > run / 3 && sum < 3 * run && sum > own / 3 && sum < 3 * own) }'
expect "the times agree" 0 $?

# ---- files are complete ----

echo kept >"$room/kept.lua"
fails() { expect "$1" "$2" "$(profile "${@:3}" | head -1)"; }
fails "a file that is no model" "$room/kept.lua:2: error: syntax error near <eof>" --model "$room/kept.lua" -o "$room/kept.lua.lua"
expect "no file is left" "" "$(ls "$room/kept.lua.lua" "$room"/.pianola-* 2>/dev/null)"
"$PIANOLA" profile $gpt -D width=256 --microbatches 100000 -o "$room/kept.lua" >/dev/null 2>&1 &
sleep 0.5
kill -TERM $!
wait $! 2>/dev/null
expect "ended by a signal, it leaves the old file" kept "$(cat "$room/kept.lua")"
expect "and leaves no other file" "" "$(ls "$room"/.pianola-* 2>/dev/null)"

# ---- errors ----

fails "no model" "pianola: error: \`profile\` times the layers of a model: give one with --model, e.g. --model schedules/models/gpt.lua"
fails "a file" "pianola: error: \`profile\` takes no file, but got 'gpt.lua'; name a model with --model" gpt.lua
fails "a cost model" "pianola: error: $room/costs.lua: is a cost model, which already gives the times of its layers; give one with layers" --model "$room/costs.lua"
fails "another ending" "pianola: error: -o x.csv: expected a name that ends in .lua, for a cost model, or in .txt, for PipeDream's graph" $gpt -o x.csv
fails "only an ending" "pianola: error: -o .lua: expected a name that ends in .lua, for a cost model, or in .txt, for PipeDream's graph" $gpt -o .lua
fails "one file for two outputs" "pianola: error: -o and --fit both write to $room/x.lua" $gpt -o "$room/x.lua" --fit "$room/x.lua"
fails "the model itself" "pianola: error: schedules/models/gpt.lua: this file is an input; name another one to write to" $gpt -o schedules/models/gpt.lua
fails "a cluster to stdout" "pianola: error: --fit -: the table goes to stdout; name a file" $gpt --fit -
fails "a missing folder" "pianola: error: $room/none/x.lua: No such file or directory" $gpt -o "$room/none/x.lua"
fails "no microbatches" "pianola: error: --microbatches 0: expected a whole number of at least 1" $gpt --microbatches 0
fails "too many microbatches" "pianola: error: --microbatches: at most 100000 microbatches" $gpt --microbatches 100001
fails "bf16 on a CPU" "pianola: error: schedules/models/gpt.lua: precision = \"bf16\" runs on GPUs only; train with --device cuda, or set precision = \"fp32\"" $gpt -D precision=bf16
fails "a graph of stages" "schedules/models/legs.lua:21: error: a model whose layers are stages is already cut; to partition or tune it, give its layers without stages" --model schedules/models/legs.lua
fails "an unknown parameter" "pianola: error: -D widht=3: no script has a parameter 'widht'; did you mean 'width'?" $gpt -D widht=3
finish
