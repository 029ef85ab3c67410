#!/usr/bin/env bash
# Checks PyTorch's schedule CSV: `show` writes the same CSV as PyTorch, and `import` reads it back as the same schedule.
# A CSV that could not run is refused, with its row and column.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT

# 1F1B on two ranks, with four microbatches: PyTorch 2.15's own text.
S='schedules/1f1b.lua -D workers=2 -D batches=4'
expect "jobs alone" "0F0,0F1,0B0,0F2,0B1,0F3,0B2,0B3
1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3" "$("$PIANOLA" show $S --format torch-csv)"
expect "with communication" \
    "0UNSHARD,0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0WAIT_SEND_F0,0F2,0SEND_F2,0RECV_B1,0B1,0WAIT_SEND_F1,0F3,0SEND_F3,0RECV_B2,0B2,0WAIT_SEND_F2,0RECV_B3,0B3,0WAIT_SEND_F3,0REDUCE_GRAD,0WAIT_REDUCE_GRAD,0RESHARD
1UNSHARD,1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1F1,1RECV_F2,1B1,1SEND_B1,1F2,1RECV_F3,1B2,1SEND_B2,1F3,1B3,1SEND_B3,1REDUCE_GRAD,1WAIT_REDUCE_GRAD,1RESHARD,1WAIT_SEND_B0,1WAIT_SEND_B1,1WAIT_SEND_B2,1WAIT_SEND_B3" \
    "$("$PIANOLA" show $S --format torch-csv-comms)"

expect "a rank may hold the weights of three stages" \
    "0UNSHARD,1UNSHARD,2UNSHARD,0F0,0RESHARD,3UNSHARD,1F0,1RESHARD,4UNSHARD,2F0,3F0,4F0,4B0,4REDUCE_GRAD,4WAIT_REDUCE_GRAD,4RESHARD,1UNSHARD,3B0,3REDUCE_GRAD,3WAIT_REDUCE_GRAD,3RESHARD,0UNSHARD,2B0,2REDUCE_GRAD,2WAIT_REDUCE_GRAD,2RESHARD,1B0,1REDUCE_GRAD,1WAIT_REDUCE_GRAD,1RESHARD,0B0,0REDUCE_GRAD,0WAIT_REDUCE_GRAD,0RESHARD" \
    "$("$PIANOLA" show schedules/breadth_first.lua -D workers=1 -D batches=1 -D chunks=5 --format torch-csv-comms)"

# Round trip: the same CSV, and the same program apart from its name. Schedules that PyTorch cannot express are refused.
body() { "$PIANOLA" show "$1" --format streams | tail -n +3; }
told=0
for schedule in schedules/*.lua; do
    for form in torch-csv torch-csv-comms; do
        if ! "$PIANOLA" show "$schedule" --format $form >"$room/a.csv" 2>"$room/why"; then
            grep -q "^pianola: error: $schedule: PyTorch's CSV " "$room/why" ||
                expect "$schedule: why PyTorch cannot express it" "PyTorch's CSV …" "$(cat "$room/why")"
            continue
        fi
        told=$((told + 1))
        rm -f "$room/a.lua"
        expect "$schedule, $form, imported" "" "$("$PIANOLA" import "$room/a.csv" -o "$room/a.lua" 2>&1)"
        expect "$schedule, $form, read back" "$(cat "$room/a.csv")" "$("$PIANOLA" show "$room/a.lua" --format $form 2>&1)"
        [ "$(grep -c 'overlap\|offload' "$schedule")" = 0 ] || continue # a CSV has no overlapping pairs and no offloading
        expect "$schedule, $form: the program" "$(body "$schedule" | cksum)" "$(body "$room/a.lua" | cksum)"
    done
done
expect "schedules that PyTorch can express, in two forms each" yes "$([ $told -ge 20 ] && echo yes)"

# A CSV works wherever a schedule does: recognised by its name, or by its first cell.
"$PIANOLA" show schedules/zbv.lua --format torch-csv >"$room/zbv.csv"
"$PIANOLA" import "$room/zbv.csv" -o "$room/zbv.lua"
expect "show CSV" "$("$PIANOLA" show "$room/zbv.lua")" "$("$PIANOLA" show "$room/zbv.csv")"
expect "check CSV" "$("$PIANOLA" check "$room/zbv.lua")" "$("$PIANOLA" check "$room/zbv.csv")"
expect "from standard input" "$("$PIANOLA" show "$room/zbv.lua" | sed 's/zbv:/stdin:/')" "$("$PIANOLA" show - <"$room/zbv.csv")"
printf ',0F0,0B0\n(1F0;1B0)OVERLAP_F_B' >"$room/paired"
expect "a CSV by its first cell" "$room/paired:2: error: row 2, column 1: 1B0 never runs: it needs 1F0, which comes later in this row" \
    "$("$PIANOLA" check "$room/paired" 2>&1 | head -n 1)"
echo 'return schedule {}' >"$room/lua.csv"
expect "a file that is not named .csv is no CSV" \
    "$room/lua.csv:1: error: row 1, column 1: 'return schedule {}' is not an action" \
    "$("$PIANOLA" check "$room/lua.csv" 2>&1 | head -n 1 | cut -d';' -f1)"
printf '0F0,0B0\0\n' >"$room/zero.csv"
expect "a CSV with a zero" "pianola: error: $room/zero.csv: byte 7 is zero: this is not text" "$("$PIANOLA" check "$room/zero.csv" 2>&1)"

# PyTorch's own form: CRLF, and in the form without communication, empty cells where a rank waits.
printf '0F0,0F1,,,0B0,0B1\r\n,1F0,1B0,1F1,1B1\r\n' >"$room/crlf.csv"
printf '0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1' | "$PIANOLA" import - | grep -v '^--' >"$room/lf"
expect "CRLF and empty cells" "$(cat "$room/lf")" "$("$PIANOLA" import "$room/crlf.csv" | grep -v '^--')"
printf '0F0,0F1,(0F2;0B0)OVERLAP_F_B,0I1, 0W1,0B2\n' >"$room/a.csv"
expect "a pair" '    { "0F0", "0F1", "0F2+0B0", "0I1", "0W1", "0B2", }, -- rank 0' "$("$PIANOLA" import "$room/a.csv" | grep 'rank 0')"
"$PIANOLA" import "$room/a.csv" | "$PIANOLA" check - >"$room/out" 2>&1
expect "the imported script compiles" 0 $?
"$PIANOLA" show schedules/dualpipev.lua --format torch-csv | "$PIANOLA" import - -o "$room/a.lua"
"$PIANOLA" run "$room/a.lua" --model schedules/models/integers.lua --steps 3 --compare --quiet >"$room/out" 2>&1
expect "it trains to the same weights as one rank" "0 $(cat "$room/out")" "$? $(cat "$room/out")"

# Quotes, and blank lines at the end, as spreadsheets write them.
printf '"0F0", "0F1","",,"0B0","0B1"\r\n"",1F0," 1B0 ",1F1,1B1\r\n\r\n \n\n' >"$room/quoted.csv"
expect "quoted cells, and blank lines at the end" "$(cat "$room/lf")" "$("$PIANOLA" import "$room/quoted.csv" | grep -v '^--')"
expect "a quoted CSV by its first cell" "proved" "$("$PIANOLA" check - <"$room/quoted.csv" 2>&1 | grep -o proved)"

# PyTorch 2.5 writes I, W and B as B, W and BW.
printf '0F0,0F1,0B0,0W0,0BW1\n' >"$room/old.csv"
expect "PyTorch 2.5's spelling" '    { "0F0", "0F1", "0I0", "0W0", "0B1", }, -- rank 0' "$("$PIANOLA" import "$room/old.csv" | grep 'rank 0')"
expect "the script notes that spelling" \
    1 "$("$PIANOLA" import "$room/old.csv" | grep -c "^-- From PyTorch 2.5's spelling")"
printf '0F0,0B0,0W0\n' >"$room/old.csv"
expect "PyTorch 2.5's spelling, without BW" '    { "0F0", "0I0", "0W0", }, -- rank 0' "$("$PIANOLA" import "$room/old.csv" | grep 'rank 0')"

# refused CELLS MESSAGE: rows are separated by |
refused() {
    printf '%s\n' "$1" | tr '|' '\n' >"$room/bad.csv"
    local got
    got=$(cd "$room" && "$OLDPWD/$PIANOLA" import bad.csv 2>&1 >"$room/out")
    expect "import $1: exit code" 2 $?
    expect "import $1" "$2" "$(head -n 1 <<<"$got")"
    expect "import $1: nothing is written" "" "$(cat "$room/out")"
}
pairless="is not a pair, such as (0F3;1B2)OVERLAP_F_B"
action="is not an action; an action is a stage, then F, I, B, W, SEND_F, RECV_F, SEND_B, RECV_B, WAIT_SEND_F or WAIT_SEND_B and a microbatch, or UNSHARD, RESHARD, REDUCE_GRAD or WAIT_REDUCE_GRAD, such as 0F3 or 2UNSHARD"
refused "0F0junk,0B0" "bad.csv:1: error: row 1, column 1: '0F0junk' $action"
refused "0F0,0B" "bad.csv:1: error: row 1, column 2: '0B' $action"
refused "0F0,0B0,0UNSHARD0" "bad.csv:1: error: row 1, column 3: '0UNSHARD0' $action"
refused "0F0,0B0,0F00" "bad.csv:1: error: row 1, column 3: '0F00' $action"
refused "0F0,0R0,0B0" "bad.csv:1: error: row 1, column 2: '0R0' $action"
refused '0F0,"0B0' "bad.csv:1: error: row 1, column 2: '\"0B0' $action"
refused "0F99999999999,0B0" "bad.csv:1: error: row 1, column 1: '0F99999999999' $action"
refused "0F999999,0B0" "pianola: error: bad.csv: stages up to 0 and microbatches up to 999999 need at least 2000000 jobs, but there are 2"
refused "0F0,0F1,(0F2;0B0),0B1" "bad.csv:1: error: row 1, column 3: '(0F2;0B0)' $pairless"
refused "0F0,(0F1;0B0;0B1)OVERLAP_F_B" "bad.csv:1: error: row 1, column 2: '(0F1;0B0;0B1)OVERLAP_F_B' $pairless"
refused "(0F0;0F1)OVERLAP_F_B" "bad.csv:1: error: row 1, column 1: 0F0 and 0F1 cannot overlap: only a forward and a backward can"
refused "0F0,0B0||0F1" "bad.csv:2: error: row 2 has no job: every rank needs a row with at least one job"
refused "0UNSHARD" "bad.csv:1: error: row 1 has no job: every rank needs a row with at least one job"
refused "0F0,0F0,0B0" "bad.csv:1: error: row 1, column 2: 0F0 is already in row 1, column 1"
refused "0F0,0B0|0F1,0B1" "bad.csv:2: error: row 2, column 1: stage 0 is rank 0's, by row 1: a stage belongs to one rank"
refused "0F0,0I0,0W0,0F1,0I1" "bad.csv:1: error: row 1, column 5: 0W1 is nowhere; a backward is B, or I and W"
refused "0F0,0I0,0W0,0B0" "bad.csv:1: error: row 1, column 2: 0I0 beside 0B0 in row 1, column 4: a backward is B, or I and W"
refused "0F0,0F1,0I0,0W0,0BW1" "bad.csv:1: error: row 1, column 5: 0BW1 is PyTorch 2.5's spelling of a full backward, but 0I0 in row 1, column 3 belongs to a later version, which writes 0B1"
refused "0F0,0F1,0W0,0BW1" "bad.csv:1: error: row 1, column 3: 0B0 is nowhere; a backward is BW, or B and W"
refused "0F0,0BW0,0B0,0W0" "bad.csv:1: error: row 1, column 3: 0B0 beside 0BW0 in row 1, column 2: a backward is BW, or B and W"
refused "(0F0;0W1)OVERLAP_F_B,0F1,0B1,0BW0" "bad.csv:1: error: row 1, column 1: 0F0 and 0W1 cannot overlap: only a forward and a backward can"
refused "0F0,0F1,0I0,0W0" "pianola: error: bad.csv: there is no 0B1; every microbatch passes every stage forward and backward"
refused "0B0,0F0" "bad.csv:1: error: row 1, column 1: 0B0 never runs: it needs 0F0, which comes later in this row"
refused "0F0,0B0,0F1,0B1|1F1,1B1,1F0,1B0" "bad.csv:1: error: row 1, column 2: 0B0 never runs: it needs 1B0, which row 2, column 4 never gets to"

# With communication.
up="0F0,0SEND_F0,0RECV_B0,0B0" down="1RECV_F0,1F0,1B0,1SEND_B0"
printf '%s\n' $up $down | "$PIANOLA" import - >"$room/out"
expect "a CSV with communication" 0 $?
refused "${up/,0SEND_F0/}|$down" "pianola: error: bad.csv: there is no 0SEND_F0 in row 1, and stages 0 and 1 are on ranks 0 and 1"
refused "${up/0RECV_B0,/}|$down" "pianola: error: bad.csv: there is no 0RECV_B0 in row 1, and stages 1 and 0 are on ranks 1 and 0"
printf '%s\n' $up,0WAIT_SEND_F0 $down,1WAIT_SEND_B0 | "$PIANOLA" import - | grep -v ^-- >"$room/waits"
expect "waits, which earlier versions of PyTorch lack" "$(printf '%s\n' $up $down | "$PIANOLA" import - | grep -v ^--)" "$(cat "$room/waits")"
refused "$up,0WAIT_SEND_F0|$down" "bad.csv:2: error: row 2, column 4: no wait for 1SEND_B0, but there is 0WAIT_SEND_F0 in row 1"
refused "0F0,0WAIT_SEND_F0,0SEND_F0,0RECV_B0,0B0|$down" "bad.csv:1: error: row 1, column 2: 0WAIT_SEND_F0, but no 0SEND_F0 is before it"
refused "$up,0WAIT_SEND_B0|$down" "bad.csv:1: error: row 1, column 5: 0WAIT_SEND_B0, but no 0SEND_B0 is before it"
refused "$up,0WAIT_SEND_F|$down" "bad.csv:1: error: row 1, column 5: '0WAIT_SEND_F' $action"
refused "$up,0WAIT_SEND_F0|$down,1WAIT_SEND_B0,1WAIT_SEND_B0" "bad.csv:2: error: row 2, column 6: 1WAIT_SEND_B0 is already in row 2, column 5"
late="1RECV_F0,1F0,1RECV_F1,1F1,1B0,1SEND_B0,1B1,1SEND_B1,1WAIT_SEND_B0,1WAIT_SEND_B1"
refused "0F0,0SEND_F0,0WAIT_SEND_F0,0F1,0SEND_F1,0WAIT_SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1|${late/1RECV_F1,1F1,1B0,1SEND_B0,1B1,1SEND_B1,1WAIT_SEND_B0/1B0,1SEND_B0,1WAIT_SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1}" \
    "bad.csv:1: error: row 1, column 6: 0WAIT_SEND_F1 never runs: it needs 1RECV_F1, which row 2, column 6 never gets to"
refused "$up|${down/1SEND_B0/}" "bad.csv:2: error: row 2, column 4: this cell is empty; a schedule with communication must have no empty cells"
refused "0SEND_F0,0F0,0RECV_B0,0B0|$down" "bad.csv:1: error: row 1, column 1: 0SEND_F0 never runs: it needs 0F0, which comes later in this row"
refused "0F0,0SEND_F0,0B0,0RECV_B0|$down" "bad.csv:1: error: row 1, column 3: 0B0 never runs: it needs 0RECV_B0, which comes later in this row"
refused "0F0,0SEND_F0,1F0,1B0,0B0" "bad.csv:1: error: row 1, column 2: 0SEND_F0, but stages 0 and 1 are on one rank"
refused "0RECV_F0,0F0,0B0" "bad.csv:1: error: row 1, column 1: 0RECV_F0, but stage 0 is the first"
refused "$up,0RESHARD|$down" "bad.csv:1: error: row 1, column 1: 0F0 needs weights that no 0UNSHARD has brought"
refused "0UNSHARD,0UNSHARD,$up|$down" "bad.csv:1: error: row 1, column 2: 0UNSHARD, but stage 0's weights are there"
refused "0F0,0SEND_F0,0REDUCE_GRAD,0RECV_B0,0B0|$down" "bad.csv:1: error: row 1, column 5: 0B0 comes after 0REDUCE_GRAD"
refused "$up,0REDUCE_GRAD,0REDUCE_GRAD|$down" "bad.csv:1: error: row 1, column 6: a second 0REDUCE_GRAD"
refused "$up|$down,1WAIT_REDUCE_GRAD" "bad.csv:2: error: row 2, column 5: 1WAIT_REDUCE_GRAD, but no 1REDUCE_GRAD is before it"
# Messages from one rank to another match by order, whatever their stages.
rule="messages from one rank to another are matched by order, so receive them as they are sent"
up="0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,0WAIT_SEND_F0,0WAIT_SEND_F1"
down="1RECV_F0,1F0,1RECV_F1,1F1,1B0,1SEND_B0,1B1,1SEND_B1,1WAIT_SEND_B0,1WAIT_SEND_B1"
printf '%s\n' "$up" "$down" | "$PIANOLA" check - >"$room/out" 2>&1
expect "messages received in the order sent" "0 proved" "$? $(grep -o proved "$room/out")"
refused "${up/0RECV_B0,0B0,0RECV_B1,0B1/0RECV_B1,0RECV_B0,0B0,0B1}|$down" \
    "bad.csv:1: error: row 1, column 5: 0RECV_B1 is received before 0RECV_B0, but rank 1 sends 1SEND_B0 before 1SEND_B1 (row 2, column 6): $rule"
refused "$up|${down/1RECV_F0,1F0,1RECV_F1,1F1/1RECV_F1,1RECV_F0,1F0,1F1}" \
    "bad.csv:2: error: row 2, column 1: 1RECV_F1 is received before 1RECV_F0, but rank 0 sends 0SEND_F0 before 0SEND_F1 (row 1, column 2): $rule"
expect "check reports it too" 2 "$("$PIANOLA" check "$room/bad.csv" >"$room/out" 2>&1; echo $?)"
# Forwards and backwards of several stages of a V, with any two neighbouring receives of rank 1 swapped.
"$PIANOLA" show schedules/interleaved.lua -D workers=3 -D chunks=2 -D batches=3 --format torch-csv-comms >"$room/v.csv"
expect "stages in turn" 0 "$("$PIANOLA" check "$room/v.csv" >"$room/out" 2>&1; echo $?)"
swapped=0
for ((i = 1; i < 6; i++)); do
    awk -v i=$i 'BEGIN { FS = OFS = "," } NR == 2 { for (c = n = 0; c < NF;) if ($(++c) ~ /^[14]RECV_F/) at[++n] = c
        x = $at[i]; $at[i] = $at[i + 1]; $at[i + 1] = x } { print }' "$room/v.csv" >"$room/w.csv"
    "$PIANOLA" check "$room/w.csv" 2>&1 | grep -q "error: row 2, column [0-9]*: [14]RECV_F[0-2] is received before .*: $rule\$" && swapped=$((swapped + 1))
done
expect "any two neighbouring receives swapped" 5 $swapped
finish
