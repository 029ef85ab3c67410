#!/usr/bin/env bash
# Checks the command line: error messages, exit codes, and that no output is left half written.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT

# says WANTED ARGS...: expects exit 2 and this line on stderr. stdout is empty, or with --json holds the error.
says() {
    local got
    got=$("$PIANOLA" "${@:2}" 2>&1 >"$room/out" </dev/null | head -n 1)
    expect "pianola ${*:2}" "$1" "$got"
    expect "pianola ${*:2}: stdout" "" "$(case " ${*:2} " in *" --json "*) grep -v '^{"schema": 1, "error": {"message": .*}}$' ;; *) cat ;; esac <"$room/out")"
    "$PIANOLA" "${@:2}" >/dev/null 2>&1 </dev/null
    expect "pianola ${*:2}: exit code" 2 $?
}
S=schedules/1f1b.lua
says "pianola: error: unknown command 'shwo'; did you mean 'show'?" shwo $S
says "pianola: error: unknown option --modle; did you mean --model; see \`pianola help show\`" show $S --modle x
# `run` prints no report before it refuses.
touch "$room/notes"
says "pianola: error: $room/notes: is no folder" run $S --model schedules/models/integers.lua --steps 1 --checkpoint "$room/notes"
# Options that newcomers are likely to try.
for given in "--batches 16" --batches=16; do
    # shellcheck disable=SC2086
    says "pianola: error: unknown option --batches; a script's parameter is set with -D batches=16" show $S $given
done
says "pianola: error: unknown option --batches; a script's parameter is set with -D batches=N" run $S --batches
says "pianola: error: \`show\` takes no --workers; a script's parameter is set with -D workers=8" show $S --workers 8
says "pianola: error: -D workers: a setting has no spaces; write -D workers=8" show $S -D workers = 8
says "pianola: error: -D workers: a setting has no spaces; write -D workers=8" compare $S -D workers =8
says "pianola: error: -D workers=: a setting has no spaces; write -D workers=8" show $S -D workers= 8
says "pianola: error: 1f1b: No such file or directory; did you mean schedules/1f1b.lua?" show 1f1b
says "pianola: error: gpipe.lua: No such file or directory; did you mean schedules/gpipe.lua?" check gpipe.lua
says "pianola: error: gpt: No such file or directory; did you mean schedules/models/gpt.lua?" show $S --model gpt
says "pianola: error: schedules/zbv: No such file or directory; did you mean schedules/zbv.lua?" show schedules/zbv --json
says "pianola: error: zigzag: No such file or directory" show zigzag
says "pianola: error: --steps -1: expected a whole number of at least 0" run $S --steps -1
says "pianola: error: --width 1e3: expected a whole number of at least 20" show $S --width 1e3
says "pianola: error: \`show --list\` takes no file, but got '$S'" show --list $S
says "pianola: error: \`compare\` takes no --format; see \`pianola help compare\`" compare $S --format json
says "pianola: error: --json and --markdown exclude each other" compare $S --json --markdown
says "pianola: error: --format jsn: expected grid, streams, tsv, json, svg, html, chrome, pftrace, hta, chakra, torch-csv or torch-csv-comms; did you mean json?" show $S --format jsn
says "pianola: error: --color blue: expected always, never or auto" show $S --color blue
says "pianola: error: --steps 0: expected a whole number of at least 1" show $S --steps 0
says "pianola: error: --steps 1000000000: too many to draw; at most 24242" show $S --steps 1000000000
says "pianola: error: --steps 7: a step of pipedream runs its period 4 times" show schedules/pipedream.lua --steps 7
says "pianola: error: schedules/pipedream.lua: PyTorch's CSV is for schedules with one update at the end of a step, but here updates are jobs: update = \"flush\" makes it one" \
    show schedules/pipedream.lua --format torch-csv
says "pianola: error: --steps: --format tsv shows a single step; formats of several steps are grid, svg, html, chrome, pftrace or chakra" show $S --steps 2 --format tsv
says "pianola: error: --steps and --measured exclude each other: a trace has all measured steps" show $S --steps 2 --measured run.tsv
says "pianola: error: \`check\` takes no --steps; see \`pianola help check\`" check $S --steps 3
says "pianola: error: \`show\` takes one file, but got 'b.lua' too" show $S b.lua
says "pianola: error: --model needs a value; see \`pianola help show\`" show $S --model
says "pianola: error: \`import\` needs a file, e.g. schedule.csv; see \`pianola help import\`" import
says "pianola: error: \`import\` takes no --json; see \`pianola help import\`" import --json x.csv
says "pianola: error: $room/none/out: No such file or directory" show $S --format pftrace -o "$room/none/out"
says "pianola: error: \`compile\` needs -o DIR" compile $S
says "pianola: error: -o -: several files are written into a folder; for a folder named -, write ./-" compile $S -o -
says "pianola: error: -o -: several files are written into a folder; for a folder named -, write ./-" show $S --format hta -o -
says "pianola: error: --json and --format svg exclude each other" show $S --json --format svg
says "pianola: error: --to 0: expected a time after 0" show $S --to 0
says "pianola: error: --from -1: expected a time of at least 0" show $S --from -1
says "pianola: error: --with : expected lanes, memory, path or sends" show $S --with path,
says "pianola: error: --with needs a value, but got an empty one; see \`pianola help show\`" show $S --with ""
says "pianola: error: --output needs a value, but got an empty one; see \`pianola help compile\`" compile $S -o ""
says "pianola: error: --timeline -: stdout has the report; name a file" \
    run $S --model schedules/models/integers.lua --timeline -
# Refuses to overwrite an input, under any name.
cp $S "$room/mine.lua"
cp $S "$room/mine.csv"
says "pianola: error: $room/./mine.lua: this file is an input; name another one to write to" show "$room/mine.lua" --format svg -o "$room/./mine.lua"
says "pianola: error: $room/mine.lua: this file is an input; name another one to write to" show $S --measured "$room/mine.lua" -o "$room/mine.lua"
says "pianola: error: $room/mine.csv: this file is an input; name another one to write to" import "$room/mine.csv" -o "$room/mine.csv"
says "pianola: error: $room/mine.lua: this file is an input; name another one to write to" diff $S "$room/mine.lua" --html "$room/mine.lua"
says "pianola: error: $room/mine.lua: this file is an input; name another one to write to" \
    run $S --model schedules/models/integers.lua --data "$room/mine.lua" --timeline "$room/mine.lua"
cp schedules/models/integers.lua "$room/model.lua"
cp schedules/clusters/latency.lua "$room/cluster.lua"
ln -s model.lua "$room/link.lua"
says "pianola: error: $room/link.lua: this file is an input; name another one to write to" show $S --model "$room/model.lua" --format svg -o "$room/link.lua"
says "pianola: error: $room/cluster.lua: this file is an input; name another one to write to" show $S --cluster "$room/cluster.lua" -o "$room/cluster.lua"
says "pianola: error: $room/cluster.lua: this file is an input; name another one to write to" \
    diff $S schedules/gpipe.lua --cluster "$room/cluster.lua" --fit "$room/cluster.lua"
says "pianola: error: $room/model.lua: this file is an input; name another one to write to" run $S --model "$room/model.lua" --timeline "$room/model.lua"
expect "no input was overwritten" "" "$(cmp $S "$room/mine.lua" 2>&1; cmp $S "$room/mine.csv" 2>&1
    cmp schedules/models/integers.lua "$room/model.lua" 2>&1; cmp schedules/clusters/latency.lua "$room/cluster.lua" 2>&1)"
says "pianola: error: two outputs would go to $room/./new.svg: name another file for one" diff $S $S --svg "$room/new.svg" --html "$room/./new.svg"
# Checks outputs before the work: a script that runs for long is not even read.
says "pianola: error: $room: Is a directory" show "$room/none.lua" --format svg -o "$room"
says "pianola: error: $room/none/out: No such file or directory" show "$room/none.lua" --format svg -o "$room/none/out"
says "pianola: error: $room/mine.lua: this is not a folder, but several files are written: -o takes a folder, existing or new" \
    show "$room/none.lua" --format hta -o "$room/mine.lua"
# stdin is read only once.
twice="pianola: error: -: stdin can be read only once; name a file for one of the two"
expect "stdin twice" "$twice" "$("$PIANOLA" show - --model - <$S 2>&1)"
expect "stdin twice" "$twice" "$("$PIANOLA" check - --cluster - <$S 2>&1)"
expect "a schedule from a pipe, to diff" "expected streams or a timeline; a schedule is read from a file only" \
    "$("$PIANOLA" diff <(cat $S) $S 2>&1 | sed 's/.*[0-9]: //')"
says "pianola: error: \`show\` was given an empty file name" show ""
# Inputs that are not schedules.
: >"$room/empty.lua"
says "$room/empty.lua:1: error: the script returned nil, not a schedule; end it with: return schedule { ... }" check "$room/empty.lua"
printf '\177ELF\0\1\2' >"$room/binary"
says "$room/binary:1: error: unexpected symbol near '<\\127>'" check "$room/binary"
says "pianola: error: $room/binary: byte 4 is zero: this is not text" verify "$room/binary"
says "pianola: error: schedules: Is a directory" check schedules
A=generated/1f1b
says "pianola: error: $A/streams.txt: this is a program, not a script; \`pianola verify\` and \`pianola diff\` read it" show $A/streams.txt
says "pianola: error: $A/timeline.tsv: this is a timeline, not a script; \`pianola diff\` reads it, and \`pianola show SCHEDULE.lua --measured\` reads one that was measured" \
    check $A/timeline.tsv
says "pianola: error: $S/out: Not a directory" compile $S -o $S/out
says "pianola: error: \`run\` trains a model: give one with --model, e.g. --model schedules/models/gpt.lua" run $S
says "pianola: error: $room/none: No such file or directory" run $S --model schedules/models/gpt.lua --data "$room/none"
says "pianola: error: $room/none/t: No such file or directory" \
    run $S --model schedules/models/integers.lua --timeline "$room/none/t"
says "pianola: error: -dz: no pass has that letter; there are -dl (lower), -dm (mem), -dw (lanes) and -dt (what the searches tried)" check $S -dz
says "README.md:1: error: expected \"pianola 1\", the first line of a program's text form" verify README.md

# Exits 0 for yes, 1 for no.
"$PIANOLA" show $S --format streams >"$room/streams"
"$PIANOLA" verify "$room/streams" >"$room/out" 2>&1
expect "verify, proved" "0 $room/streams: proved: 1f1b on 4 ranks, at any speed of ranks and links" "$? $(cat "$room/out")"
sed 's/ wait(RECV_F 0 3 from 0)//' "$room/streams" >"$room/racing"
"$PIANOLA" verify "$room/racing" >"$room/out" 2>&1
expect "verify, refuted" "1 $room/racing: refuted (races)" "$? $(head -n 1 "$room/out")"

# Every command reports a full disk once.
for args in "check $S" "show $S" "help scripts" "help man" "help show" "verify $room/streams" "diff $S $S" "compare $S --json"; do
    expect "$args on a full disk" "pianola: error: stdout: No space left on device, 2" \
        "$("$PIANOLA" $args 2>&1 >/dev/full | paste -sd'|'), $("$PIANOLA" $args >/dev/full 2>&1; echo $?)"
done

# File names may hold any characters; JSON and XML output escapes them.
odd=$room/$'b\xff"<.lua'
cp $S "$odd"
named() { "$PIANOLA" "$@" 2>&1 | iconv -f UTF-8 -t UTF-8 2>&1 | grep -o 'b�[^,]*' | head -n 1; }
expect "check --json" 'b�\"<"' "$(named check "$odd" --json)"
expect "show --json" 'b�\"<"' "$(named show "$odd" --json)"
expect "compare --json" 'b�\"<"' "$(named compare "$odd" --json)"
expect "run --json" 'b�\"<"' "$(named run "$odd" --model schedules/models/integers.lua --steps 1 --json)"
expect "diff --json" 'b�\"<.lua"' "$(named diff "$odd" $S --json)"
expect "chrome" 'b�\"<"' "$(named show "$odd" --format chrome)"
expect "svg" 'b�&#34;&#60;</title>' "$(named show "$odd" --format svg)"
expect "a diff's page" 'b�&#34;&#60;.lua → schedules/1f1b.lua</title>' "$(named diff "$odd" $S --html -)"

# Each dump reads back, and printing it again gives the same bytes.
for pass in l m w; do
    "$PIANOLA" check $S -d$pass | grep -v ': proved: ' >"$room/dump"
    expect "-d$pass begins a program" "pianola 1" "$(head -n 1 "$room/dump")"
done
expect "the last dump is the program" "" "$(diff "$room/dump" "$room/streams")"

# An output gets its name only when it is complete. It follows links and keeps the mode of the file it replaces.
mkdir "$room/files"
"$PIANOLA" show $S -o "$room/files/grid"
: >"$room/files/real" && chmod 640 "$room/files/real" && ln -s real "$room/files/link"
"$PIANOLA" show $S -o "$room/files/link"
expect "an output that is a link stays a link and keeps its mode" "lrwxrwxrwx link,-rw-r----- real" \
    "$(cd "$room/files" && stat -c '%A %n' link real | paste -sd,)$(cmp "$room/files/grid" "$room/files/real" 2>&1)"
long=$(printf 'x%.0s' {1..255})
"$PIANOLA" show $S -o "$room/files/$long"
expect "a name of the maximum length" "" "$(cmp "$room/files/grid" "$room/files/$long" 2>&1)"
(trap '' XFSZ && ulimit -f 0 && "$PIANOLA" show $S -o "$room/files/grid" 2>/dev/null)
expect "a full disk leaves the old output" "" "$(cmp "$room/files/real" "$room/files/grid" 2>&1)"
expect "no temporary file remains" "grid link real $long" "$(ls -A "$room/files" | paste -sd' ')"
"$PIANOLA" show $S --format hta -o "$room/hta/"
says "pianola: error: $room/hta/rank2.json: belongs to a trace with more ranks; the two would be read as one: remove it, or name another folder" \
    show $S -D workers=2 --format hta -o "$room/hta"
cp -r "$room/hta" "$room/hta before"
(trap '' XFSZ && ulimit -f 7 && "$PIANOLA" show $S -D batches=9 --format hta -o "$room/hta" 2>/dev/null) # the first file fits
expect "several files are written all or none" "" "$(diff -r "$room/hta before" "$room/hta")"
# A reader that closes the pipe early causes no error and no message.
expect "a reader that closes the pipe" "pianola 1 141" \
    "$({ env --default-signal=PIPE "$PIANOLA" show $S -D batches=5000 --format streams; echo " $?" >"$room/code"; } 2>&1 | head -n 1)$(cat "$room/code")"

# Long work shows its progress on a terminal and clears it at the end. Short work, and output to a file, show none.
on_terminal() { script -qec "$PIANOLA $*" /dev/null </dev/null | tr '\r' '\n' | tr -d '\033'; }
large="-D workers=2 -D batches=30000"
expect "progress" "[Kpianola: cost, 2 of 16,[Kpianola: report, 16 of 16,[K,1f1b: proved" \
    "$(on_terminal check $S $large | sed -n 's/: [0-9]* jobs.*//;/cost/p;/report/,$p' | sed '/^$/d' | paste -sd,)"
expect "no progress for short work" "1f1b: proved" "$(on_terminal check $S | sed 's/: [0-9]* jobs.*//;/^$/d')"
expect "no progress in a file" "" "$("$PIANOLA" check $S $large 2>&1 >/dev/null)"

# Checks that OpenBLAS's threads have ended: counts threads while the command waits for a script.
mkfifo "$room/script.lua"
"$PIANOLA" check "$room/script.lua" >/dev/null &
exec 3>"$room/script.lua"
expect "one thread while it waits" 1 "$(ls /proc/$!/task | wc -l)"
cat $S >&3
exec 3>&-
wait $!
expect "a script from a pipe" 0 $?

# Output to a pipe does not depend on the terminal.
expect "a pipe's width does not follow the terminal's" \
    "$(COLUMNS=40 "$PIANOLA" show $S)" "$(COLUMNS=200 TERM=xterm "$PIANOLA" show $S)"
expect "NO_COLOR wins over FORCE_COLOR" "" "$(NO_COLOR=1 FORCE_COLOR=1 "$PIANOLA" show $S | grep -c $'\033' | grep -v '^0$')"
expect "--color=always wins over NO_COLOR" yes \
    "$(NO_COLOR=1 "$PIANOLA" show $S --color always | grep -q $'\033' && echo yes)"
expect "help begins with examples" "Examples:" "$("$PIANOLA" help show | sed -n 4p)"
expect "version" "pianola " "$("$PIANOLA" --version | cut -c1-8)"
for topic in check show compare diff compile run verify check-bound export-weights import report ops passes; do
    "$PIANOLA" help $topic >/dev/null 2>&1
    expect "help $topic" 0 $?
done

expect "a warning says how much memory a large schedule may take" "pianola: 1f1b has 2000000 jobs; compiling them takes up to about 4 GB of memory" \
    "$("$PIANOLA" check schedules/1f1b.lua -D workers=1 -D stages=1 -D batches=1000000 2>&1 >/dev/null | head -n 1)"
expect "no such warning for a small schedule" "" "$("$PIANOLA" check schedules/1f1b.lua 2>&1 >/dev/null)"
finish
