#!/usr/bin/env bash
# Checks generated/, the committed small instance of every schedule with unit costs. A change of the compiler shows as a
# diff of schedules. Also checks the picture in each schedule's comment, its thumbnail in schedules/pictures/, and
# outputs that the documents quote.
#
#   tests/passes/golden/test.sh          checks
#   BLESS=1 tests/passes/golden/test.sh  rewrites (make bless)
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
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
        case $changed:$file in # shows the change by its meaning, or else by its bytes
        ?*:streams.txt | ?*:timeline.tsv)
            meaning=$("$PIANOLA" diff "generated/$name/$file" "$fresh/$name/$file" 2>/dev/null) || [ $? = 2 ] ||
                changed=$(head -n 60 <<<"$meaning") ;;
        esac
        expect "generated/$name/$file is what the compiler gives (else: make bless)
$changed" "" "${changed:0:1}"
    done
    expect "$schedule: show --ascii prints timeline.txt" "" \
        "$("$PIANOLA" show --ascii "$schedule" | diff - "$fresh/$name/timeline.txt" | head -n 5)"
    expect "the picture in $schedule is the timeline (else: make bless)" "" \
        "$(diff "$schedule" "$fresh/$name.lua" | head -n 5)"
    thumbnail=schedules/pictures/$name.svg
    "$PIANOLA" show --format svg "$schedule" | awk -f tests/passes/golden/thumbnail.awk >"$fresh/$name.svg"
    [ -z "$BLESS" ] || cmp -s "$fresh/$name.svg" "$thumbnail" || cp "$fresh/$name.svg" "$thumbnail"
    expect "$thumbnail is the timeline (else: make bless)" "" "$(cmp "$fresh/$name.svg" "$thumbnail" 2>&1)"
done
expect "generated/ holds the schedules and nothing else" "$(ls "$fresh" | grep -v '\.')" "$(ls generated)"
expect "schedules/pictures/ holds the thumbnails and nothing else" \
    "$(cd "$fresh" && ls ./*.svg)" "$(cd schedules/pictures && ls ./*.svg)"

# says FRESH DOCUMENT WHAT: the document equals the fresh one.
says() {
    [ -z "$BLESS" ] || cmp -s "$1" "$2" || cp "$1" "$2"
    expect "$2 $3 (else: make bless)" "" "$(diff "$2" "$1" | head -n 10)"
    rm "$1"
}
# Documents quote outputs word for word, in the first ``` block after the line that holds MARK.
quotes() { # QUOTED DOCUMENT MARK
    awk -v quoted="$1" -v mark="$3" '
        index($0, mark) { armed = !done }
        armed && /^```/ { armed = 0; done = inside = 1; print; while ((getline line < quoted) > 0) print line; next }
        inside && /^```/ { inside = 0 }
        !inside { print }' "$2" >"$fresh/document"
    says "$fresh/document" "$2" "quotes what \`$3\` prints"
}
python3 tests/passes/golden/zoo.py "$PIANOLA" schedules/*.lua >"$fresh/document"
says "$fresh/document" schedules/zoo.md "has the figures of \`compare\`, and each schedule once"
schedules=$(echo schedules/{gpipe,1f1b,2bp,zb_h1,zb_h2,breadth_first,interleaved,zbv,v_half,v_min,ddp,fsdp_whole,weipipe,tawpipe}.lua)
for quoted in "best-schedule -D workers=4 -D batches=8 --sort makespan" "best-schedule -D workers=8 -D batches=32 --sort makespan" \
    "slow-rank -D workers=8 -D batches=32 --jitter 10% --sort p95"; do
    # shellcheck disable=SC2086
    "$PIANOLA" compare $schedules ${quoted#* } >"$fresh/compared"
    quotes "$fresh/compared" "schedules/${quoted%% *}.md" "${quoted#* }"
done
"$PIANOLA" compare schedules/{pipedream,pipedream_vertical,pipedream_2bw,asp,bsp,model_parallel}.lua -D batches=2400 >"$fresh/compared"
quotes "$fresh/compared" schedules/time-to-loss.md "pipedream_2bw,asp,bsp,model_parallel}.lua"
"$PIANOLA" diff schedules/1f1b.lua schedules/zb_h1.lua >"$fresh/compared"
quotes "$fresh/compared" compiler/diff/README.md "build/pianola diff schedules/1f1b.lua schedules/zb_h1.lua"
rm "$fresh/compared"
"$PIANOLA" help ops >"$fresh/ops"
quotes "$fresh/ops" compiler/instructions.md "pianola help ops"
rm "$fresh/ops"
cut="--profile tests/search/partition/vgg16.txt --workers 4 --bandwidth 1e9 --sum"
# shellcheck disable=SC2086
"$PIANOLA" partition $cut >"$fresh/partition"
quotes "$fresh/partition" compiler/search/partition/README.md "build/pianola partition $cut"
rm "$fresh/partition"

# The same input gives the same bytes, in any folder and environment.
"$PIANOLA" compile "$PWD/schedules/lpp.lua" -o "$fresh/again" && COLUMNS=33 LC_ALL=C NO_COLOR=1 \
    "$PIANOLA" compile schedules/lpp.lua -o "$fresh/once more"
expect "two compiles give the same bytes" "" "$(diff -r "$fresh/again" "$fresh/once more")"
finish
