#!/usr/bin/env bash
# generated/: a small instance of every schedule, with unit costs, as committed. A change of the compiler shows as a diff
# of schedules. The picture in the comment on top of each schedule, and the README's, are checked too.
#
#   tests/golden_test.sh          checks
#   BLESS=1 tests/golden_test.sh  rewrites (make bless)
cd "$(dirname "$0")/.." || exit 2
. tests/lib.sh
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT

# The schedule's comment: the lines that begin with `--|` after `-- pianola show` are the timeline.
with_picture() { # SCHEDULE TIMELINE
    awk -v picture="$2" '
        /^--\|/ { next }
        { print }
        /^-- pianola show / { while ((getline line < picture) > 0 && line != "") print "--| " line }' "$1"
}

for schedule in schedules/*.lua; do
    name=$(basename "$schedule" .lua)
    "$PIANOLA" compile "$schedule" -o "$fresh/$name" || { expect "$name compiles" yes no && continue; }
    with_picture "$schedule" "$fresh/$name/timeline.txt" >"$fresh/$name.lua"
    if [ -n "$BLESS" ]; then
        mkdir -p "generated/$name"
        cp "$fresh/$name"/* "generated/$name/"
        cmp -s "$fresh/$name.lua" "$schedule" || cp "$fresh/$name.lua" "$schedule"
    fi
    for file in streams.txt timeline.tsv timeline.txt report.json; do
        changed=$(diff -u "generated/$name/$file" "$fresh/$name/$file" 2>&1 | head -n 40)
        expect "generated/$name/$file is what the compiler gives (else: make bless)
$changed" "" "${changed:0:1}"
    done
    expect "the picture in $schedule is the timeline (else: make bless)" "" \
        "$(diff "$schedule" "$fresh/$name.lua" | head -n 5)"
done
expect "generated/ holds the schedules and nothing else" "$(ls "$fresh" | grep -v '\.lua$')" "$(ls generated)"

# What the documents quote, they quote word for word.
quotes() {
    expect "$2 quotes $3 word for word" yes "$(awk 'NR == FNR { want = want $0 "\n"; next } { have = have $0 "\n" }
        END { print want != "" && index(have, want) ? "yes" : "no" }' "$1" "$2")"
}
quotes generated/1f1b/timeline.txt README.md "the timeline of 1F1B"
"$PIANOLA" help ops >"$fresh/ops"
quotes "$fresh/ops" compiler/README.md "pianola help ops"
rm "$fresh/ops"

# The same input gives the same bytes, wherever it stands and whatever the environment.
"$PIANOLA" compile "$PWD/schedules/lpp.lua" -o "$fresh/again" && COLUMNS=33 LC_ALL=C NO_COLOR=1 \
    "$PIANOLA" compile schedules/lpp.lua -o "$fresh/once more"
expect "two compiles give the same bytes" "" "$(diff -r "$fresh/again" "$fresh/once more")"
finish
