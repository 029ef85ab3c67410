#!/usr/bin/env bash
# Checks `pianola compare`: its figures, one size for all schedules, and which schedules it leaves out and why.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT

column() { "$PIANOLA" compare schedules/{1f1b,zbv,v_min}.lua "${@:2}" --json | sed -nE "s/^      \"$1\": \"?([^,\"]*).*/\1/p" |
    paste -sd' '; }
# Figures in units of a rank's share of the model: ZB-V's 51 and 8 activations count half stages.
expect "makespans" "33 25.5 29.5" "$(column makespan)"
expect "live activations" "4 4 2" "$(column peak_activations)"
expect "bytes sent" "48 96 96" "$(column bytes_sent)"
expect "sorted, with ties by name" "v_min 1f1b zbv" "$(column schedule --sort live)"
expect "a parameter applies to the schedules that have it" "117 99.5 109.5" \
    "$(column makespan -D workers=8 -D batches=32 -D stages=8)"
# With a model, nothing is rescaled: the makespan is the same as in `pianola show`.
expect "with a model" "$(figure makespan schedules/zbv.lua --model schedules/models/gpt.lua)" \
    "$(column makespan --model schedules/models/gpt.lua | cut -d' ' -f2)"
# Live activations are in units of a rank's share of the model, with or without --model: V-Min's four are half shares,
# and a member of a team of two has half of a stage of half the model.
expect "live with a model" "1f1b 4 v_min 2 zbv 4 ddp 4 tp_1f1b 2 seq1f1b 2.5" \
    "$("$PIANOLA" compare schedules/{1f1b,v_min,zbv,ddp,tp_1f1b,seq1f1b}.lua --model schedules/models/gpt.lua --json |
        sed -nE 's/^      "(schedule|peak_activations)": "?([^",]*).*/\2/p' | paste -sd' ')"
expect "a parameter that no script has" \
    "pianola: error: -D chunks=2: none of the scripts has this parameter" \
    "$("$PIANOLA" compare schedules/1f1b.lua schedules/gpipe.lua -D chunks=2 2>&1)"
expect "no such column" \
    "pianola: error: --sort makspan: there is no such column; did you mean 'makespan'?; use schedule, stages, makespan, mean, p95, steady, bubble, closed, stale, versions, exposed, live, memory, least, sent, bound, gap, held, one-ahead or two-ahead" \
    "$("$PIANOLA" compare schedules/1f1b.lua --sort makspan 2>&1)"

expect "columns sort by their headings" "1f1b v_min zbv" "$(column schedule --sort memory)"
# Every heading is a name for --sort.
for heading in $("$PIANOLA" compare schedules/{pipedream,fsdp}.lua --jitter 10% -D batches=8 --steady | sed -n 4p); do
    "$PIANOLA" compare schedules/fsdp.lua --jitter 10% --sort "$heading" >/dev/null
    expect "--sort $heading" 0 $?
done
# A quantity has one name in the report, in the table and in `pianola help report`.
names=$("$PIANOLA" help report | grep -oE '^[a-z][a-z_-]*')
for heading in busy idle span live memory received stored; do
    expect "the report has $heading" 1 "$("$PIANOLA" show schedules/1f1b.lua | sed -n '/^1f1b:/,/^makespan/p' | grep -cw "$heading")"
    expect "help report has $heading" 1 "$(grep -cx "$heading" <<<"$names")"
done
for heading in makespan bubble exposed live memory least gap versions; do
    expect "help report has compare's $heading" 1 "$(grep -cx "$heading" <<<"$names")"
done

# Steady states: time per microbatch, for schedules whose updates are jobs, or on request. ZB-V's 48 for 8 microbatches
# count half stages, so they are 3 in units of a rank's share.
expect "time per microbatch in the steady state" "4.125 3 3.6875" "$(column steady)"
heads() { "$PIANOLA" compare "$@" | sed -nE '3s/ +/ /gp'; }
plain="schedule stages makespan bubble closed exposed live memory least sent bound gap held"
more="schedule stages makespan steady bubble closed stale versions exposed live memory least sent bound gap held"
expect "columns" "$plain" "$(heads schedules/{1f1b,zbv}.lua)"
expect "columns with --steady" "$more" "$(heads schedules/{1f1b,zbv}.lua --steady)"
expect "columns where updates are jobs" "$more" "$(heads schedules/{1f1b,pipedream}.lua)"
expect "columns of Markdown with --steady" 16 "$("$PIANOLA" compare schedules/1f1b.lua --steady --markdown | sed -n 4p | grep -o -- '-:\?|' | wc -l)"
# PipeDream's own comparison (Narayanan 2019, Harlap 2018) in one command, with sizes of the whole step.
papers=$(echo schedules/{pipedream,pipedream_vertical,pipedream_2bw,asp,bsp,model_parallel}.lua)
# shellcheck disable=SC2086
expect "PipeDream's comparison" "4 ranks, 2400 microbatches
pipedream 7209 3 3 4
pipedream_vertical 7209 3 3 4
pipedream_2bw 7209 3 1 2
asp 7200 3 7 1
bsp 7200 3 0 1
model_parallel 28800 12 0 1" "$("$PIANOLA" compare $papers -D batches=2400 |
    awk 'NR == 1 { sub(/;.*/, ""); print } NR > 3 { print $1, $3, $4, $7, $8 }')"
expect "a script without the parameter batches keeps its own step" \
    "3 microbatches, not 2400: it has no parameter batches" \
    "$(echo 'return schedule { workers = 4, stages = 1, batches = 3, w = function() return 0, 0 end }' >"$room/three.lua"
    "$PIANOLA" compare schedules/pipedream.lua "$room/three.lua" -D batches=2400 | sed -n 's/^  three  //p')"

# ---- one size for all ----

# rows ARGS...: prints the size, then the schedules in the table. left ARGS...: prints what is left out, with the
# reason.
rows() { "$PIANOLA" compare "$@" 2>&1 | sed -nE '1s/;.*//p;/^$/d;2,/^left out:/{/^(left|schedule)/d;s/ .*//p}' | paste -sd' '; }
left() { "$PIANOLA" compare "$@" 2>&1 | sed -n '/^left out:/,$s/^  //p'; }
at() { for name; do echo "schedules/$name.lua"; done; }
expect "the first schedule sets the size" "4 ranks, 8 microbatches 1f1b lpp hanayo" "$(rows $(at 1f1b lpp hanayo))"
expect "nothing is left out" "" "$(left $(at 1f1b lpp hanayo))"
expect "another first schedule sets another size" \
    "8 ranks, 8 microbatches lpp 1f1b hanayo" "$(rows $(at lpp 1f1b hanayo))"
expect "-D sets the size" "2 ranks, 12 microbatches lpp 1f1b hanayo" \
    "$(rows $(at lpp 1f1b hanayo) -D workers=3 -D workers=2 -D batches=12 -D group=2)"
expect "-D overrides one number of the first schedule's size" \
    "8 ranks, 12 microbatches lpp 1f1b" "$(rows $(at lpp 1f1b) -D batches=12)"
expect "the same output with the first schedule's size in -D" "$("$PIANOLA" compare $(at 1f1b lpp hanayo) -D workers=4 -D batches=8)" "$("$PIANOLA" compare $(at 1f1b lpp hanayo))"
expect "a schedule without the parameter is left out" "apart  6 ranks, not 4: it has no parameter workers" "$(left $(at 1f1b apart zbv))"
expect "and the others are compared" "4 ranks, 8 microbatches 1f1b zbv" "$(rows $(at 1f1b apart zbv))"
expect "as the first schedule it sets the size" "6 ranks, 8 microbatches apart 1f1b" "$(rows $(at apart 1f1b))"
expect "a schedule that has the parameter, but another number of ranks" "odd  6 ranks, not 4" \
    "$(echo 'local p = params { workers = 5 } return schedule { workers = p.workers + 2, stages = 1, batches = 8, w = function() return 0, 0 end }' >"$room/odd.lua"
    left schedules/1f1b.lua "$room/odd.lua")"
expect "another number of microbatches" "few  3 microbatches, not 8: it has no parameter batches" \
    "$(echo 'return schedule { workers = 4, stages = 1, batches = 3, w = function() return 0, 0 end }' >"$room/few.lua"
    left schedules/1f1b.lua "$room/few.lua")"
# All schedules get one model and one cluster, whatever their parameters are called.
echo 'local p = params { workers = 1 } return cluster { link = function() return p.workers, math.huge end }' >"$room/links.lua"
expect "the size is not applied to a cluster's parameters" 50,50 \
    "$("$PIANOLA" compare schedules/{lpp,lpp}.lua -D group=2 --cluster "$room/links.lua" --json | sed -nE 's/.*"makespan": (.*),/\1/p' | paste -sd,)"

# ---- scripts that do not compile ----

serial="schedules/serial.lua:7: error: serial runs on one rank; workers = 4 needs another schedule"
echo 'return schedule { workers = 4' >"$room/torn.lua"
expect "scripts left out, with the first line of each error" "serial  $serial
torn    $room/torn.lua:2: error: '}' expected (to close '{' at line 1) near <eof>
none    $room/none.lua: No such file or directory" "$(left $(at gpipe serial) "$room/torn.lua" "$room/none.lua" schedules/1f1b.lua)"
expect "the other scripts are compared" "4 ranks, 8 microbatches gpipe 1f1b" "$(rows $(at gpipe serial) "$room/torn.lua" "$room/none.lua" schedules/1f1b.lua)"
expect "the first script that compiles sets the size" "8 ranks, 8 microbatches lpp 1f1b" "$(rows "$room/torn.lua" $(at lpp 1f1b))"
"$PIANOLA" compare schedules/*.lua schedules/pianola.d.lua >"$room/all" 2>&1
expect "all shipped schedules: exit code" 0 $?
expect "all shipped schedules: left out" "apart overflow serial pianola.d" "$(sed -n '/^left out:/,$s/^  \([^ ]*\) .*/\1/p' "$room/all" | paste -sd' ')"
expect "all shipped schedules: every other one has a row" "$(($(ls schedules/*.lua | wc -l) - 3))" "$(sed '1,3d;/^$/,$d' "$room/all" | wc -l)"
expect "schedules left out are listed last, with or without --sort" \
    "$(left schedules/*.lua)" "$(left schedules/*.lua --sort gap)"
"$PIANOLA" compare $(at 1f1b serial apart) --json >"$room/json"
expect "JSON" '1f1b [{"schedule": "serial", "why": "'"$serial"'"}, {"schedule": "apart", "why": "6 ranks, not 4: it has no parameter workers"}]' \
    "$(python3 -c 'import json, sys
t = json.load(open(sys.argv[1]))
print(" ".join(s["schedule"] for s in t["schedules"]), json.dumps(t["left_out"]))' "$room/json")"
expect "JSON, nothing left out" '  "left_out": []' "$("$PIANOLA" compare schedules/1f1b.lua --json | grep left_out)"
expect "Markdown" "Left out:||- serial: $serial" "$("$PIANOLA" compare $(at 1f1b serial) --markdown | tail -n 3 | paste -sd'|')"

# trouble WANTED ARGS...: expects exit 2 and nothing on stdout.
trouble() {
    local got
    got=$("$PIANOLA" compare "${@:2}" 2>&1 >"$room/out")
    expect "compare ${*:2}" "2 $1" "$? $got"
    expect "compare ${*:2}: stdout" "" "$(cat "$room/out")"
}
trouble "pianola: serial: $serial
pianola: torn: $room/torn.lua:2: error: '}' expected (to close '{' at line 1) near <eof>
pianola: error: none of these schedules can be compared" schedules/serial.lua "$room/torn.lua" -D workers=4
trouble "$serial
    7 | if p.workers ~= 1 then error(\"serial runs on one rank; workers = \" .. p.workers .. \" needs another schedule\") end" \
    schedules/serial.lua -D workers=4
trouble "pianola: 1f1b: -D workers=4x: expected an integer; schedules/1f1b.lua says workers = 4
pianola: gpipe: -D workers=4x: expected an integer; schedules/gpipe.lua says workers = 4
pianola: error: none of these schedules can be compared" schedules/{1f1b,gpipe}.lua -D workers=4x
expect "a bad -D value is an error even if the first schedule lacks the parameter" "1f1b  -D workers=x: expected an integer; schedules/1f1b.lua says workers = 4" \
    "$(left $(at apart 1f1b) -D workers=x)"
trouble "pianola: error: -D workers=4: none of the scripts has this parameter" schedules/{apart,overflow}.lua -D workers=4
expect "a parameter of a script that does not compile is known" "interleaved" "$(left schedules/{1f1b,interleaved}.lua -D chunks=0 | cut -d' ' -f1)"

# ---- names ----

mkdir "$room/a" "$room/b"
cp schedules/1f1b.lua "$room/a/x.lua"
cp schedules/gpipe.lua "$room/b/x.lua"
expect "files with the same name are shown with their paths" "4 ranks, 8 microbatches $room/a/x.lua zbv $room/b/x.lua" \
    "$(rows "$room/a/x.lua" schedules/zbv.lua "$room/b/x.lua")"
long=$(printf 'long%.0s' {1..50})
cp schedules/1f1b.lua "$room/$long.lua"
expect "a long name is not cut" "4 ranks, 8 microbatches $long" "$(rows "$room/$long.lua")"
expect "one schedule from stdin" \
    "4 ranks, 8 microbatches stdin gpipe" "$(rows - schedules/gpipe.lua <schedules/1f1b.lua)"
expect "not two schedules from stdin" "-  -: stdin can be read only once; name a file for one of the two" "$(left - schedules/gpipe.lua - <schedules/1f1b.lua)"
finish
