#!/usr/bin/env bash
# Checks the pages of `show --format html`, `diff --html` and `frontier --html`: the parts around the picture, and in a
# browser (viewer.py) the picture itself, in narrow and wide windows, in light and dark themes, with wheel, mouse and
# keys; and how large and how fast pages of a million operations are (speed.py).
# tests/pictures/timelines and tests/pictures/diffs check the pictures' contents.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
S=schedules/1f1b.lua
L="--cluster schedules/clusters/latency.lua -D latency=1"
from_html() { sed 's/&#38;/\&/g; s/&#60;/</g; s/&#62;/>/g; s/&#34;/"/g'; }
told() { sed -nE "s/.*<$1[^>]*>(.*)<\/$1>.*/\1/p" "$2" | from_html | paste -sd' '; }
text() { sed -n '/<pre>/,/<\/pre>/p' "$1" | sed 's/.*<pre>//; /<\/pre>/d' | from_html; }

# The page's text equals the command's.
"$PIANOLA" show $S $L --color-by mb --format html -o "$room/show.html"
"$PIANOLA" diff $S schedules/zb_h1.lua $L --html "$room/diff.html" >/dev/null
"$PIANOLA" diff --all $S schedules/zb_h1.lua $L >"$room/text"
expect "the command" "pianola show $S $L --color-by mb --format html" "$(told code "$room/show.html")"
expect "the command of a diff" "pianola diff $S schedules/zb_h1.lua $L" "$(told code "$room/diff.html")"
cp $S "$room/it's \$1.lua"
"$PIANOLA" show "$room/it's \$1.lua" -D workers=2 --format html -o "$room/odd.html"
expect "a shell can run the command" "" "$(eval "$(told code "$room/odd.html" | sed "s|^pianola|'$PIANOLA'|")" | cmp - "$room/odd.html" 2>&1)"
expect "names" "1f1b $S → schedules/zb_h1.lua" "$(told h1 "$room/show.html") $(told h1 "$room/diff.html")"
most() { ranks "$1" $S $L | tr , '\n' | sort -n | tail -n 1; }
received=$(ranks bytes_received $S $L | awk -F , '{ for (i = 1; i <= NF; i++) sum += $i; print sum }')
expect "figures" "$(figure makespan $S $L) units, $(figure bubble $S $L | awk '{ printf "%.1f %%", 100 * $1 }'), $(
    most peak_bytes) B, $(most peak_activations), $received B, $(figure lower_bound $S $L) units" \
    "$(sed -nE 's/.*<dd>(.*)<\/dd>.*/\1/p' "$room/show.html" | paste -sd, | sed 's/,/, /g')"
expect "figures of a diff" "$(awk '/^makespan/ { print $2, $3, "→", $4, $5; exit }' "$room/text")" "$(sed -nE 's/.*<dt>makespan<\/dt><dd>(.*)<\/dd>.*/\1/p' "$room/diff.html")"
expect "the report" "" "$("$PIANOLA" show $S $L | sed -n '/^1f1b: /,$p' | diff - <(text "$room/show.html"))"
expect "the text of a diff" "" "$(diff "$room/text" <(text "$room/diff.html"))"
"$PIANOLA" diff generated/1f1b schedules/zb_h1.lua --html "$room/read.html" >/dev/null
expect "the verdict" "Proved: no race, no deadlock, every gradient complete|A and B proved|B proved; A was read, not proved" \
    "$(sed -nE 's/.*id="verdict"[^>]*>(.*)<\/p>/\1/p' "$room/show.html" "$room/diff.html" "$room/read.html" | paste -sd'|')"
expect "only a proved page has a tick" "1 1 0" "$(grep -c 'id="verdict" class="good"' "$room/show.html") $(
    grep -c 'id="verdict" class="good"' "$room/diff.html") $(grep -c 'id="verdict" class="good"' "$room/read.html")"

# The picture, in a browser, with screenshots in build/pages/.
mkdir -p build/pages
here=$(dirname "${BASH_SOURCE[0]}")
for script in viewer speed; do
    log=$(timeout -k 5 600 python3 "$here/$script.py" build/pages 2>&1)
    sed '$d' <<<"$log"
    if [[ $(tail -n 1 <<<"$log") =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed ]]; then
        ((passed += BASH_REMATCH[1], failed += BASH_REMATCH[2]))
    else
        expect "$script.py exits" "N passed, M failed" "$(tail -n 1 <<<"$log")"
    fi
done
finish
