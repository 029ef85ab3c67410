#!/usr/bin/env bash
# Checks that `show --measured` and `diff` read runs that other tools recorded. samples/ has traces of PyTorch 2.15's
# profiler, over gloo, that torch/profiled.py wrote and cut.py cut down; samples/cuda is made by hand after traces of
# GPUs. judge.py computes the times of jobs from the raw traces. samples/flight has dumps of PyTorch's flight recorder;
# flight.py gives them known times.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
samples=tests/formats/recordings/samples
f1b="schedules/1f1b.lua -D workers=4 -D batches=4"

# ---- what real traces hold ----

for run in "1f1b 4 4" "interleaved 2 4" "zbv 2 4" "gpipe 2 2"; do
    read -r name ranks batches <<<"$run"
    "$PIANOLA" show "schedules/$name.lua" -D workers="$ranks" -D batches="$batches" --format torch-csv -o "$room/$name.csv"
    set -- "$@" "$room/$name.csv" "$samples/$name"
done
expect "the raw traces' times" "128 jobs
73 passed, 0 failed" "$(python3 tests/formats/recordings/judge.py "$PIANOLA" "$@")"
expect "a schedule and PyTorch's CSV of it: the same times" \
    "$("$PIANOLA" show "$room/1f1b.csv" --measured $samples/1f1b --format tsv)" \
    "$("$PIANOLA" show $f1b --measured $samples/1f1b --format tsv)"
expect "the report" "1f1b: 4 workers, 4 stages, 4 microbatches; measured, one step" \
    "$("$PIANOLA" show $f1b --measured $samples/1f1b | grep ^1f1b)"
expect "the optimizer's time is the last update's" "U 2 0.000 U 0 0.120" \
    "$("$PIANOLA" show "$room/interleaved.csv" --measured $samples/interleaved --format tsv |
        awk '$1 == 0 && $5 == "U" { printf "%s%s %d %.3f", n++ ? " " : "", $5, $6, 1000 * ($4 - $3) }')"

# ---- GPUs: an action lasts from its first kernel to its last, whichever thread launched them ----

expect "jobs, messages and updates on GPUs" \
    "0 compute 0 30 F 0|0 compute 182 253 B 0|0 compute 260 272 U 0|0 send 30 60 SEND_F 0|0 recv 161 181 RECV_B 1|1 compute 63 90 F 1|1 compute 90 160 B 1|1 compute 165 177 U 1|1 send 161 181 SEND_B 1|1 recv 30 62 RECV_F 0" \
    "$("$PIANOLA" show schedules/1f1b.lua -D workers=2 -D batches=1 --measured $samples/cuda --format tsv |
        awk -F '\t' 'NR > 1 { split($2, lane, " "); printf "%s%s %s %d %d %s %s", n++ ? "|" : "", $1, lane[1], 1e6 * $3 + 0.5, 1e6 * $4 + 0.5, $5, $6 }')"

# ---- diff: the account, and clocks ----

within() { awk -v a="$1" -v b="$2" -v by="$3" 'BEGIN { print (a - b <= by && b - a <= by) ? "yes" : a " and " b }'; }

"$PIANOLA" diff $f1b $samples/1f1b --json >"$room/diff.json"
expect "diff: exit code" 1 $?
expect "diff: every operation is matched" "" "$(grep -E '"(only_a|only_b|moved)": \[[^]]' "$room/diff.json")"
expect "diff: no clock is set" '"b": { "steps": 1, "clocks": [0, 0, 0, 0], "clock_error": 0 }' "$(grep -o '"b": { "steps.*}' "$room/diff.json")"
expect "diff: A may be the recording" 1 "$("$PIANOLA" diff $samples/1f1b $f1b | grep -c '^A is measured: 1 step; no message contradicts')"

# The measured costs predict another schedule of the same stages: work, but not I and W, which 1F1B lacks.
"$PIANOLA" diff $f1b $samples/1f1b --fit "$room/costs.lua" >"$room/out"
expect "fitted costs: seconds" s "$(figure unit $f1b --cluster "$room/costs.lua")"
expect "fitted costs: the median F of stage 2" yes "$(within "$("$PIANOLA" show $f1b --measured $samples/1f1b --format tsv |
    awk '$5 == "F" && $6 == 2 { print $4 - $3 }' | sort -g | awk 'NR == 2 || NR == 3 { sum += $1 } END { print sum / 2 }')" \
    "$(sed -nE 's/^  F = .*\[2\] = ([0-9.e-]*),.*/\1/p' "$room/costs.lua")" 1e-8)"
expect "fitted costs: gpipe" 0 "$("$PIANOLA" check schedules/gpipe.lua -D workers=4 -D batches=4 --cluster "$room/costs.lua" >"$room/out"; echo $?)"
expect "fitted costs: zb_h1 needs others" "pianola: error: the cluster's cost(0, \"I\") is nil, and it has no flops to derive it from; \`diff --fit\` gives flops if one side is predicted from a model" \
    "$("$PIANOLA" check schedules/zb_h1.lua -D workers=4 -D batches=4 --cluster "$room/costs.lua" 2>&1)"

# shifted RANK NANOSECONDS: copies 1f1b's traces, with that rank's clock ahead.
shifted() {
    rm -rf "$room/shifted"
    cp -r $samples/1f1b "$room/shifted"
    sed -i "s/\"baseTimeNanoseconds\":[0-9]*/\"baseTimeNanoseconds\":$((1790857026000000000 + $2))/" "$room/shifted/rank$1.json"
}
makespan() { "$PIANOLA" show $f1b --measured "$1" --json | field makespan; }
for rank in 1 3; do
    shifted $rank 7000000000
    "$PIANOLA" diff $f1b "$room/shifted" --json | grep -o '"b": { "steps.*}' >"$room/clocks"
    offset=$(sed -E 's/.*"clocks": \[([^]]*)\].*/\1/' "$room/clocks" | cut -d, -f $((rank + 1)))
    error=$(sed -E 's/.*"clock_error": ([^ ]*).*/\1/' "$room/clocks")
    expect "rank $rank's clock is 7 s ahead: the offset" yes "$(within "$offset" -7 "$error")"
    expect "rank $rank's clock is 7 s ahead: the error is less than a step" yes "$(within "$error" 0 "$(makespan $samples/1f1b)")"
    expect "rank $rank's clock is 7 s ahead: the makespan" yes "$(within "$(makespan "$room/shifted")" "$(makespan $samples/1f1b)" "$error")"
    expect "rank $rank's clock is 7 s ahead: diff says so" 1 \
        "$("$PIANOLA" diff $f1b "$room/shifted" | grep -c "^B is measured: 1 step; clocks set, .*rank $rank's by -.*or better$")"
done
python3 - "$room/shifted/rank2.json" <<'PY'
import json, sys
trace = json.load(open(sys.argv[1]))
first = trace["traceEvents"][0]["ts"]
for event in trace["traceEvents"]:
    event["ts"], event["dur"] = first + 2 * (event["ts"] - first), 2 * event["dur"]
json.dump(trace, open(sys.argv[1], "w"))
PY
expect "a clock that runs twice as fast" 1 "$("$PIANOLA" diff $f1b "$room/shifted" |
    grep -c '^  a message still arrives .* before it was sent: clocks drift, or the files are of several runs$')"

# ---- steps ----

gpipe="schedules/gpipe.lua -D workers=2 -D batches=2"
cp -r $samples/gpipe "$room/partial"
sed -i '0,/Backward 1/{/Backward 1/d}' "$room/partial/rank1.json"
expect "a step that is not whole is left out" "pianola: left out a step: $room/partial/rank1.json has no 1B1 in step 2|3" \
    "$("$PIANOLA" show $gpipe --measured "$room/partial" --format chrome 2>&1 >"$room/out")|$(grep -o '"step":[0-9]*' "$room/out" | cut -d: -f2 | sort -u | paste -sd,)"
sed -i '/ProfilerStep/d' "$room/partial"/*.json
expect "without ProfilerStep, a step is what comes once" "pianola: left out a step: $room/partial/rank1.json has no 1B1 in step 2|1" \
    "$("$PIANOLA" show $gpipe --measured "$room/partial" --format chrome 2>&1 >"$room/out")|$(grep -o '"step":[0-9]*' "$room/out" | cut -d: -f2 | sort -u | paste -sd,)"

# ---- the flight recorder: messages, and what they tell of jobs ----

two="schedules/1f1b.lua -D workers=2 -D batches=2"
dumps=$samples/flight
# flight FORM CHANGE: prints the timeline that is read from these dumps, in microseconds; and messages on stderr
flight() {
    rm -rf "$room/flight"
    python3 tests/formats/recordings/flight.py $dumps "$room/flight" "$@"
    "$PIANOLA" show $two --measured "$room/flight" --format tsv 2>"$room/err" | awk -F '\t' 'NR > 1 {
        split($2, lane, " "); printf "%s%s %d-%d %s%s%s", n++ ? "|" : "", $1, 1e6 * $3 + 0.5, 1e6 * $4 + 0.5, $5, $6, $7 }'
}
messages="0 0-20 SEND_F00|0 100-130 SEND_F01|0 230-252 RECV_B10|0 370-392 RECV_B11"
timeline="0 0-0 F00|0 0-100 F01|0 252-252 B00|0 392-392 B01|0 392-392 U0|$messages"
timeline+="|1 22-22 F10|1 22-230 B10|1 230-230 F11|1 230-370 B11|1 370-370 U1"
timeline+="|1 230-250 SEND_B10|1 370-390 SEND_B11|1 0-22 RECV_F00|1 100-132 RECV_F01"
for form in pickle json; do
    for change in none objects coalesced; do
        expect "flight recorder, $form, $change" "$timeline" "$(flight $form $change)"
    done
    expect "flight recorder, $form: two steps" 2 "$("$PIANOLA" show $two --measured "$room/flight" --json | field measured_steps)"
    "$PIANOLA" show $two --measured "$room/flight" --format hta -o "$room/hta"
    expect "flight recorder, $form: a receive lasts from its send on" "22 22 22 22" \
        "$(grep -o '"dur":[0-9.]*,"name":"ncclKernel_RECV_B"' "$room/hta/rank0.json" | grep -o '[0-9.]*' | xargs)"
    expect "flight recorder, $form, with durations" "0 2-15 SEND_F00|0 112-125 SEND_F01|0 232-247 RECV_B10|0 372-387 RECV_B11" \
        "$(flight $form durations | tr '|' '\n' | grep '^0 .*_' | paste -sd'|')"
    expect "flight recorder, $form: a run that hangs" "$timeline" "$(flight $form hang)"
    expect "flight recorder, $form: where it hangs" "pianola: rank 0: RECV_B 1 0 from 1 of step 2 is started and not completed
pianola: rank 1: SEND_B 1 0 to 0 of step 2 is started and not completed
pianola: left out a step: $room/flight/nccl_trace_rank_0 has no RECV_B 1 0 from 1 in step 2" "$(cat "$room/err")"
    expect "flight recorder, $form: the first entry is lost" "$timeline" "$(flight $form lost)"
    expect "flight recorder, $form: steps are counted from the last" \
        "pianola: left out a step: $room/flight/nccl_trace_rank_0 has no 0F0 in the last step but 1" "$(cat "$room/err")"
done
# PyTorch sends messages of overlapping jobs in the order of its CSV, whatever the program does. Here every message of
# DualPipeV gets a time of its own.
pairs="schedules/dualpipev.lua -D workers=2 -D batches=6"
"$PIANOLA" show $pairs --format torch-csv-comms -o "$room/pairs.csv"
mkdir "$room/pairs"
python3 - "$room/pairs.csv" "$room/pairs" >"$room/wanted" <<'PY'
import json, re, sys
rows = [re.findall(r"(\d+)(SEND|RECV)_([FB])(\d+)", line.replace("WAIT_SEND", "")) for line in open(sys.argv[1])]
entries, sent, at, now = [[], []], [], [0, 0], 0
while at != [len(row) for row in rows]:
    for r, row in enumerate(rows):
        while at[r] < len(row):
            stage, what, kind, batch = row[at[r]]
            source = int(stage) - (what == "RECV") * (1 if kind == "F" else -1)
            if what == "RECV" and (source, kind, batch) not in [m for m, _ in sent]:
                break
            if what == "SEND":
                now += 10
                sent.append(((source, kind, batch), now))
            time = 1795782198677055000 + 1000 * dict(sent)[source, kind, batch]
            arrow = f"send {r}->{1 - r}" if what == "SEND" else f"recv {r}<-{1 - r}"
            entries[r].append({"record_id": len(entries[r]), "process_group": ["0", ""], "profiling_name": f"nccl:{arrow}",
                               "time_created_ns": time, "time_discovered_completed_ns": time + 5000, "state": "completed"})
            at[r] += 1
for r in (0, 1):
    json.dump({"pg_config": {"0": {"ranks": "[0, 1]"}}, "entries": entries[r]}, open(f"{sys.argv[2]}/rank_{r}", "w"))
print("\n".join(f"SEND_{kind} {stage} {batch} {time}" for (stage, kind, batch), time in sorted(sent)))
PY
expect "flight recorder: messages of overlapping jobs" "$(sort "$room/wanted")" \
    "$("$PIANOLA" show $pairs --measured "$room/pairs" --format tsv | awk '$5 ~ /^SEND/ { print $5, $6, $7, int(1e6 * $3 + 10.5) }' FS='\t' | sort)"

expect "PyTorch's own dump, without times" "pianola: rank 0: SEND_F 0 0 to 1 of step 1 is scheduled and not completed
pianola: rank 1: RECV_F 0 0 from 0 of step 1 is scheduled and not completed
pianola: error: $dumps/nccl_trace_rank_0 has no 0F0 in step 2; no step was completed" \
    "$("$PIANOLA" show $two --measured $dumps 2>&1)"

# ---- refused ----

refused() { # MESSAGE ARGS...
    local got
    got=$("$PIANOLA" "${@:2}" 2>&1 >"$room/out")
    expect "${*:2}: exit code" 2 $?
    expect "${*:2}" "pianola: error: $1" "$(head -n 1 <<<"$got")"
    expect "${*:2}: stdout" "" "$(cat "$room/out")"
}
another="give the schedule that it ran, with the same -D"
fresh() { rm -rf "$room/x" && cp -r $samples/1f1b "$room/x"; }
R=$room/x/rank
fresh
refused "$samples/1f1b: has a trace of PyTorch's profiler for 4 ranks, but the schedule has 8 ranks; $another" \
    show schedules/1f1b.lua -D workers=8 -D batches=8 --measured $samples/1f1b
sed 's/0F3,0B0/0B0,0F3/' "$room/1f1b.csv" >"$room/other.csv"
refused "$samples/1f1b/rank0.json: rank 0 ran 0F3 before 0B0 in step 2, but the schedule has them the other way round; $another" \
    show "$room/other.csv" --measured $samples/1f1b
refused "$samples/1f1b/rank0.json has no 0F4 in step 2; $another" show schedules/1f1b.lua -D workers=4 -D batches=5 --measured $samples/1f1b
refused "$samples/1f1b/rank0.json: has 0F3, which the schedule does not have on rank 0; $another" show schedules/gpipe.lua -D workers=4 -D batches=3 --measured $samples/1f1b
refused "$samples/1f1b: is a run of PyTorch's pipelining, but the schedule has ALL_REDUCE, which PyTorch's lacks" \
    show schedules/1f1b_ddp.lua --measured $samples/1f1b
refused "$samples/1f1b: a recording by another tool needs the schedule that it ran: give the script, PyTorch's CSV or the compiled folder as the other side" \
    diff $samples/1f1b generated/1f1b/timeline.tsv
refused "$samples/1f1b and $room/x are both recordings by another tool, which need the schedule that they ran: \`pianola show SCHEDULE --measured $samples/1f1b --format tsv -o a.tsv\` writes a timeline that diff takes" \
    diff $samples/1f1b "$room/x"
rm "${R}3.json"
refused "$room/x: has a trace of PyTorch's profiler for 3 ranks, but the schedule has 4 ranks; $another" show $f1b --measured "$room/x"
cp "${R}2.json" "${R}3.json"
refused "${R}2.json and ${R}3.json are both from rank 2: give a folder with one file per rank" show $f1b --measured "$room/x"
gzip "${R}3.json"
refused "${R}3.json.gz: is compressed, and Pianola reads only plain files: run \`gunzip\` on it first" show $f1b --measured "$room/x"
fresh
sed -i 's/PP:1F2"/PP:1F1"/' "${R}1.json"
refused "${R}1.json: 1F1 occurs twice in step 2" show $f1b --measured "$room/x"
sed -i 's/PP:1F1"/PP:1Z1"/' "${R}1.json"
refused "${R}1.json: the range PP:1Z1 is not an action of torch.distributed.pipelining that Pianola knows" show $f1b --measured "$room/x"
sed -i '/"PP:/d' "${R}1.json"
refused "${R}1.json: has no range of torch.distributed.pipelining, such as PP:0F0; Schedule1F1B records none: write the schedule with \`pianola show --format torch-csv\` and run it with _PipelineScheduleRuntime, or import one of PyTorch's other schedules" \
    show $f1b --measured "$room/x"
fresh
truncate -s 2000 "${R}0.json"
refused "${R}0.json: byte 2000: expected ," show $f1b --measured "$room/x"
fresh
sed -i 's/"dur":[0-9.]*/"dur":-1/' "${R}0.json"
refused "${R}0.json: the event ProfilerStep#2 has no valid ts and dur" show $f1b --measured "$room/x"
for kind in kernel cuda_runtime; do
    rm -rf "$room/x"
    cp -r $samples/cuda "$room/x"
    sed -i '/"'$kind'\|"cuda_driver\|"gpu_mem/d;$d' "${R}0.json"
    sed -i '$s/,$//' "${R}0.json"
    echo ']}' >>"${R}0.json"
    what=$([ $kind = kernel ] && echo kernels || echo "kernel launches")
    refused "${R}0.json: has no GPU $what: profile with ProfilerActivity.CPU and ProfilerActivity.CUDA" \
        show schedules/1f1b.lua -D workers=2 -D batches=1 --measured "$room/x"
done
fresh
sed -i '/gloo:recv/d' "${R}1.json"
expect "a backend that records no receives" \
    "pianola: ${R}1.json: has no gloo:recv, so its jobs include the waits for their inputs" \
    "$("$PIANOLA" show $f1b --measured "$room/x" 2>&1 >"$room/out")"
fresh
sed -i 's/"rank":2,//' "${R}2.json"
mv "${R}2.json" "$room/x/worker.json"
refused "$room/x/worker.json: its distributedInfo has no rank; put the rank into its name, such as rank0.json for rank 0" show $f1b --measured "$room/x"
mv "$room/x/worker.json" "$room/x/host_rank_2.pt.trace.json"
expect "the rank in a file's name" "$(makespan $samples/1f1b)" "$(makespan "$room/x")"

flight pickle lost_hang >"$room/out"
refused "$room/flight/nccl_trace_rank_0: entry 6, a message from rank 1, is started and not completed; which message of the schedule it is cannot be told, because the ring buffer has lost the run's first ones: record with a larger TORCH_FR_BUFFER_SIZE" \
    show $two --measured "$room/flight"
flight pickle group >"$room/out"
F=$room/flight/nccl_trace_rank
refused "${F}_1: pg_config does not list the ranks of the process group \"7\"" show $two --measured "$room/flight"
flight json none >"$room/out"
sed -i 's/nccl:send 0->1/nccl:send 0->0/' "${F}_0"
refused "${F}_0: rank 0 has a message to rank 0, which the schedule does not have; $another" show $two --measured "$room/flight"
sed -i 's/nccl:send 0->0/nccl:send 0->2/' "${F}_0"
refused "${F}_0: a message names rank 2 of the process group \"0\", whose ranks are [0, 1]" show $two --measured "$room/flight"
sed -i 's/\[0, 1\]/[0, 1, 5]/' "${F}_0"
refused "${F}_0: rank 0 exchanges messages with rank 5, but the folder has no dump of rank 5" show $two --measured "$room/flight"
flight pickle none >"$room/out"
mv "${F}_1" "${F}_2"
refused "${F}_2: its name says rank 2, but entry 0 is rank 1's: nccl:recv 1<-0" show $two --measured "$room/flight"
mv "${F}_2" "${F}_1"
cp $samples/cuda/rank0.json "$room/flight/a.json"
refused "${F}_0: is a dump of PyTorch's flight recorder, but $room/flight/a.json is a trace of PyTorch's profiler: give a folder with files of one kind" \
    show $two --measured "$room/flight"
rm "$room/flight/a.json"
truncate -s 1000 "${F}_0"
refused "${F}_0: byte 997: the pickle ends within a value" show $two --measured "$room/flight"
python3 - "${F}_0" <<'PY'
import os, pickle, sys
class Runs:
    def __reduce__(self):
        return os.system, ("touch pickle-ran",)
pickle.dump({"pg_config": {}, "entries": [Runs()]}, open(sys.argv[1], "wb"), protocol=2)
PY
refused "${F}_0: byte 42: the pickle has the opcode GLOBAL, but only plain values are read: numbers, text, lists and dictionaries" \
    show $two --measured "$room/flight"
expect "a pickle runs nothing" no "$([ -e pickle-ran ] && echo yes || echo no)"
finish
