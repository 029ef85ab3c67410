#!/usr/bin/env bash
# Schedules that update stages several times in a step, most of which repeats. --losses writes the loss of each update,
# and stopped or killed runs resume to the bits of unbroken ones. The matrix (tests/training/matrix/updates.tsv) compares
# transports.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
. tests/support/ranks.sh
standin=$PWD/build/standin
[ -f "$standin/libpianola-cuda.a" ] || { echo "libpianola-cuda.a is not in build/standin: make standin"; exit 1; }

# run SCHEDULE ARGS...: trains in one process and prints the weights, or the error.
run() { timeout 120 "$PIANOLA" run "schedules/$1.lua" "${@:2}" 2>&1 | sed -nE 's/^weights *([0-9a-f]*).*/\1/p;/^standin|error:/p' | head -n 1; }
# other_losses: prints wrong losses, and times that do not increase.
other_losses() {
    diff <(cut -f 1-4 "$room/wanted") <(cut -f 1-4 "$room/losses") | head -n 3
    awk -F'\t' 'NR > 1 && !($5 > 0 && $5 >= last) { print "line " NR " ends at " $5 }; { last = NR > 1 ? $5 : 0 }' "$room/losses" | head -n 3
    rm "$room/losses"
}
over() { # tcp|mpi NAME RANKS FLAGS...: prints the weights, or the error
    "$@" --deadline 60
    ended 90
    weights | grep . || said '^standin|error|pianola: rank'
}

# ---- losses ----

# --losses: a line per update, in order, for all microbatches.
args=(--model schedules/models/integers.lua -D rows=16 -D batches=40 -D width=32 -D replicas=2,1,1)
for name in pipedream pipedream_2bw pipedream_naive asp bsp; do
    run $name "${args[@]:0:8}" --steps 3 --losses "$room/wanted" >/dev/null
    expect "$name: a line per update, in order, for all microbatches" "" \
        "$(awk -F'\t' 'NR > 1 { n += $2; if ($1 != NR - 1) print } END { if (n != 3 * 40) print n " microbatches" }' "$room/wanted")"
done
run pipedream "${args[@]}" --steps 3 --losses "$room/wanted" >/dev/null
for device in "" --no-graph; do
    # shellcheck disable=SC2086
    PIANOLA_CUDA=$standin/libpianola-cuda.so run pipedream "${args[@]}" --steps 3 --device cuda --losses "$room/losses" $device >/dev/null
    expect "pipedream on one GPU $device: losses, and increasing times" "" "$(other_losses)"
done

# A measurement has the rows of the program, and reads back.
"$PIANOLA" run schedules/pipedream.lua "${args[@]}" --steps 3 --timeline "$room/measured" >/dev/null 2>&1
rows() { cut -f 1,2,5-9 | tail -n +2 | sort; }
expect "measured and predicted timelines have the same rows" "" \
    "$(diff <("$PIANOLA" show schedules/pipedream.lua "${args[@]}" --format tsv | rows) <(awk '$1 != 2' "$room/measured" | cut -f 2- | rows) | head -n 3)"
"$PIANOLA" show schedules/pipedream.lua "${args[@]}" --measured "$room/measured" --json >"$room/shown" 2>&1
expect "show --measured" "0 " "$? $(grep error: "$room/shown")"
"$PIANOLA" diff schedules/pipedream.lua "$room/measured" "${args[@]}" >"$room/shown" 2>&1
expect "diff: only the times differ" "1 " "$? $(grep -E 'error:|only in' "$room/shown")"

# ---- stopping and resuming ----

gpt=(--model schedules/models/gpt.lua -D width=16 -D layers=2 -D context=8 -D rows=1 -D heads=2 -D batches=40)
text=(--data /usr/share/common-licenses/GPL-3)
compiled gpt pipedream "${gpt[@]}"
unbroken=$(run pipedream "${gpt[@]}" "${text[@]}" --steps 6 --losses "$room/wanted")
often=("${text[@]}" --checkpoint "$saved" --every 1 --losses "$room/losses")
for leg in "tcp 2" "mpi 3" "tcp 6"; do
    over "${leg% *}" gpt 4 "${often[@]}" --resume --steps "${leg#* }" >"$room/last"
done
expect "two steps, one and three: the weights of six, with AdamW" "$unbroken" "$(cat "$room/last")"
expect "losses of all three" "" "$(diff <(cut -f 1-4 "$room/wanted") <(cut -f 1-4 "$room/losses") | head -n 3)"
compiled other pipedream "${gpt[@]}" -D batches=80
expect "another number of updates in a step is refused" yes \
    "$(over tcp other 4 "${often[@]}" --resume --steps 8 | grep -q 'a run with 40 to 40 updates of a stage per step, not 80 to 80' && echo yes)"

# Checkpoints hold whole layers: teams resume from single ranks, and the other way round.
legs=(--model schedules/models/integers.lua -D rows=16 -D width=16 -D layers=4 -D batches=40 -D replicas=1,1)
compiled one pipedream "${legs[@]}"
compiled team pipedream "${legs[@]}" -D tensor=2
unbroken=$(run pipedream "${legs[@]}" --steps 6)
rm -rf "$saved"
for leg in "team 4 2" "one 2 4" "team 4 6"; do
    # shellcheck disable=SC2086
    set -- $leg
    over tcp "$1" "$2" --checkpoint "$saved" --every 1 --resume --steps "$3" >"$room/last"
done
expect "a team, one rank, a team: the weights of six steps" "$unbroken" "$(cat "$room/last")"
rm -r "$saved"
over tcp gpt 4 "${text[@]}" --checkpoint "$saved" --every 1 --steps 2 >"$room/last"

# A rank dies in the middle; the resumed run rewrites the file's steps after the checkpoint.
rm -r "$saved"
tcp gpt 4 "${often[@]}" --steps 1000000 --deadline 30
reached 3
kill -9 "${pid[2]}"
ended 60
from=$(newest)
expect "a rank is killed: the others end" "1 1 137 1" "$codes"
expect "losses reach the disk before the next checkpoint" yes "$([ "$(wc -l <"$room/losses")" -gt $((40 * from)) ] && echo yes)"
printf '999999\t1\t1\t\t1\n99' >>"$room/losses"
over tcp gpt 4 "${often[@]}" --resume --steps $((from + 1)) >"$room/last"
wanted=$(run pipedream "${gpt[@]}" "${text[@]}" --steps $((from + 1)) --losses "$room/wanted")
expect "the resumed run has an undisturbed run's weights" "$wanted" "$(cat "$room/last")"
expect "its losses equal an undisturbed run's" \
    "" "$(diff <(cut -f 1-4 "$room/wanted") <(cut -f 1-4 "$room/losses") | head -n 3)"

# A rank stops: the others report where they wait, and in which repetition.
tcp gpt 4 "${text[@]}" --steps 1000000 --deadline 2
begun
sleep 0.5
kill -STOP "${pid[3]}"
ended 60
kill -9 "${pid[3]}" 2>/dev/null
expect "the others report where they wait" yes "$(grep -qhE '(repetition [0-9]+ of [0-9]+|the (beginning|end) of step [0-9]+) has taken 2 s' "$room"/err* && echo yes)"

# ---- the text form ----

# One root broadcasts a version to ranks 1 and 2, and the next to ranks 3 and 4, to which it is the first.
cat >"$room/versions.lua" <<'EOF'
return schedule {
  workers = 5, stages = 1, batches = 4, w = function(s, b, d) return 0, b + 1 end, n = oldest_batch_first,
  update = 2, version = 0,
}
EOF
"$PIANOLA" show "$room/versions.lua" --format streams >"$room/versions.txt"
expect "two broadcasts of one root" 2 "$(grep -c '^BROADCAST 0#[0-9]* from 0 by ring src=' "$room/versions.txt")"
expect "two broadcasts of one root have two names" \
    "proved" "$("$PIANOLA" verify "$room/versions.txt" 2>&1 | grep -o ' proved' | tr -d ' ')"

# ---- places that cannot be written ----

says() { "$PIANOLA" run "${@:2}" 2>&1 >/dev/null | grep -c "^pianola: error: $1"; }
small=(schedules/pipedream.lua --model schedules/models/integers.lua --steps 1)
expect "no folder" 1 "$(says "$room/none/losses: No such file or directory" "${small[@]}" --losses "$room/none/losses")"
expect "another file" 1 "$(says "$room/last: this file holds something other than losses; name another one to write to" "${small[@]}" --losses "$room/last")"
expect "a full disk" 1 "$(trap '' XFSZ && ulimit -f 1 && says "$room/full: File too large" "${small[@]}" -D batches=400 --losses "$room/full")"
expect "stdout" 1 "$(says "--losses -: stdout has the report; name a file" "${small[@]}" --losses -)"
expect "--compare is refused, because one rank trains differently" \
    1 "$(says "--compare: one rank would train differently, because " "${small[@]}" --compare)"
over tcp gpt 4 --steps 1 --losses "$room/none/losses" >"$room/last"
expect "a missing folder, in a rank" "pianola: error: $room/none/losses: No such file or directory" "$(said error)"
finish
