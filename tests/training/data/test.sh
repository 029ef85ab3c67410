#!/usr/bin/env bash
# Checks texts that the real command trains on: missing texts, and files that change while it runs.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
gpt="schedules/1f1b.lua --model schedules/models/gpt.lua -D workers=4 --json"
text=/usr/share/common-licenses/GPL-3 # a text on every Debian system

# shellcheck disable=SC2086
first=$("$PIANOLA" run $gpt --steps 2 2>"$room/err" | grep loss_last)
expect "no --data" "pianola: no --data: training on random tokens; give a text with --data FILE" "$(grep -m 1 "no --data" "$room/err")"
# shellcheck disable=SC2086
expect "no --data: the same tokens each time" "$first" "$("$PIANOLA" run $gpt --steps 2 2>/dev/null | grep loss_last)"
# shellcheck disable=SC2086
expect "no --data: other tokens for another seed" no \
    "$("$PIANOLA" run $gpt --steps 2 --seed 2 2>/dev/null | grep -qF "$first" && echo yes || echo no)"

# meddled WHAT WANTED COMMAND...: starts a training far too long for a test, and runs COMMAND on its file during the
# run.
meddled() {
    cp $text "$room/text"
    touch -d 2000-01-01 "$room/text"
    # shellcheck disable=SC2086
    timeout 60 "$PIANOLA" run $gpt --data "$room/text" --steps 100000 --timeline "$room/timeline" >"$room/out" 2>"$room/err" &
    for ((i = 0; i < 200; i++)); do
        grep -q 'ranks in one process' "$room/err" && break
        sleep 0.05
    done
    sleep 0.2
    "${@:3}"
    wait $!
    expect "$1: exit code" 2 $?
    expect "$1" "pianola: error: $room/text: $2" "$(grep 'error:' "$room/err" | sed 's/ while it was read$//')"
    expect "$1: only the error is written" "" "$(grep -v '^{"schema": 1, "error": ' "$room/out"; ls "$room" | grep timeline)"
}
replace() { cp $text "$room/new" && mv "$room/new" "$room/text"; }
cut_off() { : >"$room/text"; }
add_to() { echo more >>"$room/text"; }
meddled "a file that grows" "changed while it was used" add_to
meddled "a file that is replaced" "was replaced" replace
meddled "a file that is removed" "is gone" rm "$room/text"
meddled "a file that shrinks" "shrank" cut_off
# Several files and patterns form one text. Every file must exist and be text before training starts.
mkdir "$room/parts"
split -b 5000 $text "$room/parts/part-"
# shellcheck disable=SC2086
weights() { "$PIANOLA" run $gpt --steps 3 "$@" 2>&1 | sed -nE 's/^  "weights": "(.*)",/\1/p;s/.*error: //p'; }
whole=$(weights --data $text)
expect "a pattern" "$whole" "$(weights --data "$room/parts/part-*")"
expect "several files" "$whole" "$(weights $(printf -- '--data %s ' "$room"/parts/part-*))"
expect "a missing file" "nosuch.txt: No such file or directory" "$(weights --data nosuch.txt --data $text)"
expect "a pattern that no file matches" \
    "$room/none*: no file matches this pattern" "$(weights --data $text --data "$room/none*")"
# Arrays beside texts are no texts.
cp "$room/parts/part-aa" "$room/one" && /usr/bin/python3 -c 'import sys, numpy; numpy.save(sys.argv[1], numpy.zeros(2000, int))' "$room/one.labels.npy"
expect "a pattern that also matches labels" "$(weights --data "$room/one")" "$(weights --data "$room/one*")"
expect "a pattern that matches labels only" "$room/*.npy: no file matches this pattern" "$(weights --data "$room/*.npy")"
expect "labels as a text" "one.labels.npy: is an array of NumPy, not text; labels and other inputs are found by their names, FILE.labels.npy beside FILE" \
    "$(weights --data "$room/one.labels.npy" | sed "s,$room/,,")"
gzip -c $text >"$room/text.gz"
expect "a compressed file" 1 "$(weights --data $text --data "$room/text.gz" | grep -c 'text.gz: is compressed; unpack it first: `gzip -dc ')"
echo '{"id": 1, "text": "a"}' >"$room/lines"
expect "lines of JSON" 1 "$(weights --data "$room/lines" | grep -c 'has lines of JSON, whose braces the model would learn too')"
finish
