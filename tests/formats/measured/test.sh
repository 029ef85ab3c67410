#!/usr/bin/env bash
# Checks measured timelines (--timeline) of ranks in one process and as processes, over TCP and MPI. They hold the last
# ten steps except the first, all instructions of the program, and plausible times. For GPUs: tests/gpu/cuda/test.sh,
# tests/gpu/ranks/test.sh, tests/gpu/put/test.sh.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
. tests/support/timelines.sh
. tests/support/ranks.sh
integers=(--model schedules/models/integers.lua)
measured=$room/measured

# ---- in one process ----

lpp=(schedules/lpp.lua -D workers=4 -D stages=4 -D batches=4 -D group=2 "${integers[@]}")
"$PIANOLA" show "${lpp[@]}" --format tsv >"$room/program"
figures_in() { sed -nE 's/^  ("(loss_first|loss_last|weights)": [^,]*),?$/\1/p;/error:/p'; }
figures() { "$PIANOLA" run --json "$@" 2>&1 | figures_in; }
for run in "1:1" "2:2" "4:2 3 4" "11:2 3 4 5 6 7 8 9 10 11" "25:16 17 18 19 20 21 22 23 24 25"; do
    n=${run%%:*}
    expect "$n steps: the same losses and weights as without a timeline" "$(figures "${lpp[@]}" --steps "$n")" \
        "$(figures "${lpp[@]}" --steps "$n" --timeline "$room/timeline.tsv")"
    check_timeline "$n steps in process" "$room/program" "${run#*:}" 0 "$room/timeline.tsv"
done
expect "time 0 is the first instruction's start" \
    0.000000000 "$(tail -n +2 "$room/timeline.tsv" | cut -f 4 | sort -n | head -n 1)"
for lanes in peer rank; do
    "$PIANOLA" show "${lpp[@]}" --lanes $lanes --format tsv >"$room/program"
    "$PIANOLA" run "${lpp[@]}" --lanes $lanes --steps 3 --timeline "$room/timeline.tsv" >/dev/null 2>&1
    check_timeline "a lane per $lanes" "$room/program" "2 3" 0 "$room/timeline.tsv"
done

# ---- processes ----

# The ranks share this machine's clock, and each starts at 0 at the ranks' last meeting: all times are within a second.
compiled lpp lpp "${lpp[@]:1}"
wanted=$(figures "${lpp[@]}" --steps 8)
"$PIANOLA" show "${lpp[@]}" --format tsv >"$room/program"
same() { expect "$1: losses and weights as without a timeline" "$wanted" "$(figures_in <"$room/out0")"; }
for over in tcp mpi; do
    rm -rf "$measured"
    $over lpp 4 --steps 8 --json --timeline "$measured"
    ended 60
    same "$over"
    expect "$over: files" "timeline.0.tsv timeline.1.tsv timeline.2.tsv timeline.3.tsv" "$(ls "$measured" | paste -sd' ')"
    check_timeline "$over" "$room/program" "2 3 4 5 6 7 8" 1 "$measured"/*.tsv
    expect "$over: time 0 is when training begins" yes \
        "$(tail -qn +2 "$measured"/*.tsv | cut -f 4 | sort -g | awk 'NR == 1 { first = $1 } END { print (first >= 0 && first < 1 && $1 < 30) ? "yes" : first " to " $1 }')"
done
compiled lanes lpp "${lpp[@]:1}" --lanes peer
"$PIANOLA" show "${lpp[@]}" --lanes peer --format tsv >"$room/program-peer"
tcp lanes 4 --steps 3 --timeline "$measured"
ended 60
check_timeline "a lane per peer, over TCP" "$room/program-peer" "2 3" 1 "$measured"/*.tsv
compiled ddp ddp -D workers=3 "${integers[@]}" # a lane of a group; and fewer ranks than the folder has files for
tcp ddp 3 --steps 14 --timeline "$measured"
ended 60
expect "no file of an earlier run with more ranks is left" "timeline.0.tsv timeline.1.tsv timeline.2.tsv" "$(ls "$measured" | paste -sd' ')"
expect "a group's lane" "group 0,1,2" "$(cut -f 3 "$measured/timeline.1.tsv" | grep -m 1 group)"
expect "the last ten steps" "5 6 7 8 9 10 11 12 13 14" "$(tail -n +2 "$measured/timeline.2.tsv" | cut -f 1 | uniq | paste -sd' ')"

# Step numbers equal the checkpoints'; the first step after a checkpoint is a warm-up again.
tcp lpp 4 --steps 3 --checkpoint "$saved" --timeline "$measured"
ended 60
tcp lpp 4 --steps 8 --checkpoint "$saved" --resume --json --timeline "$measured"
ended 60
expect "resumed: weights" "$(grep weights <<<"$wanted")" "$(figures_in <"$room/out0" | grep weights)"
check_timeline "resumed" "$room/program" "5 6 7 8" 1 "$measured"/*.tsv
rm -r "$measured"
tcp lpp 4 --steps 8 --checkpoint "$saved" --resume --timeline "$measured"
ended 60
expect "no steps left to train" "0 0 0 0 yes " "$codes $(says '^pianola: no step was left to train: wrote no timeline$') $(ls "$measured")"

# A signal ends the training: the timeline has the last ten steps before it.
tcp lpp 4 --steps 1000000 --timeline "$measured"
begun
sleep 0.5
kill -INT "${pid[1]}"
ended 20
n=$(sed -n 's/^pianola: SIGINT came: stopped after step \([0-9]*\).*/\1/p' "$room/err0")
expect "SIGINT: exit codes" "130 130 130 130" "$codes"
expect "SIGINT: enough steps to measure" yes "$([ "$n" -gt 10 ] && echo yes)"
check_timeline SIGINT "$room/program" "$(seq -s ' ' $((n - 9)) "$n")" 1 "$measured"/*.tsv

# ---- places that cannot be written ----

touch "$room/file"
tcp lpp 4 --steps 1000000 --timeline "$room/file"
ended 20
expect "the folder does not exist" "2 2 2 2 pianola: error: $room/file: is no folder" "$codes $(said error:)"
expect "a timeline on some ranks only" "rank 2 has --timeline 0, but rank 0 has 1; give all ranks the same flags" \
    "$(timeout 60 mpirun --oversubscribe --app <(sed "s|\$| --flight $room --steps 5|;1,2s|\$| --timeline $measured|" "$room/lpp/app.mpi") 2>&1 | sed -n 's/^pianola: error: //p' | head -n 1)"
tcp lpp 4 --steps 1000000 --timeline "$measured"
begun
rm -r "$measured"
touch "$measured"
kill -TERM "${pid[0]}"
ended 20
expect "a folder that is removed during the run" "2 2 2 2 pianola: error: $measured/timeline.0.tsv.tmp: Not a directory" "$codes $(said error:)"
finish
