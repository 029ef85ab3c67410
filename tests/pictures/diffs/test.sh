#!/usr/bin/env bash
# Checks pictures of diffs through the real command: jobs and times of both timelines, lines that join moved or
# reordered jobs, colours for earlier and later. Also that the same input gives the same bytes, and that pages react to
# the mouse.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
. tests/support/pictures.sh
L="--cluster schedules/clusters/latency.lua"
S=schedules/1f1b.lua

# cells FILE: prints each operation of a picture: its panel (A, B, d), name, ranks and times in A and B from the tooltip
# (- if it is missing on one side), its shift, colour, x, width and y.
cells() {
    sed -nE 's/^<text class="p"[^>]*>(.).*/panel \1/p
        s/^<rect class="o[^>]* fill="#([^"]*)" x="([^"]*)" y="([^"]*)" width="([^"]*)".*<title>([^:]*): ([^<]*).*/\1 \2 \3 \4 \5|\6/p' "$1" |
        awk -F '|' '
        function times(side) { return match($2, "; in " side " rank [^;]*") ? part(substr($2, RSTART + 5, RLENGTH - 5)) : "- - -" }
        function part(s,   w) { gsub(",", "", s); split(s, w, " "); return w[3] " " w[4] " " w[6] }
        /^panel/ { panel = substr($0, 7); next }
        {
            split($1, c, " ")
            shift = match($2, "; ends [^ ;]*") ? substr($2, RSTART + 7, RLENGTH - 7) : 0
            print panel, c[5], times("A"), times("B"), shift, c[1], c[2], c[4], c[3]
        }'
}
rows() { # prints name, rank, start and end from timeline.tsv
    awk -F '\t' '$2 == "compute" && $5 ~ /^[FRIBW]$/ { print $6 $5 $7, $1, $3, $4 }' "$@" | sort
}
# drawn CLASS: prints the jobs in a list of the JSON in out.json.
drawn() { awk -v list="\"$1\":" '/^  "/ { here = $1 == list } here' "$room/out.json" | grep -cE '"op": "[0-9]+[FRIBW][0-9]+"'; }

# looks RIGHT A B: checks the picture a.svg against the times of A and B in a.tsv and b.tsv.
looks_right() {
    local cells=$room/cells
    cells "$room/a.svg" >"$cells"
    expect "$1: A's jobs are A's timeline" "" "$(diff <(awk '$1 == "A" { print $2, $3, $4, $5 }' "$cells" | sort) \
        <(rows "$room/a.tsv") | head -n 3)"
    for panel in B d; do
        expect "$1: $panel's jobs are B's timeline" "" "$(diff <(awk -v p=$panel '$1 == p { print $2, $6, $7, $8 }' "$cells" |
            sort) <(rows "$room/b.tsv") | head -n 3)"
    done
    # x = 64 + scale * start in all three panels; the first job that starts after 0 gives the scale.
    expect "$1: one time axis" "" "$(awk '
        { side = $1 == "A" ? 3 : 6; start = $(side + 1); end = $(side + 2) }
        NR == FNR { if (!scale && start > 0) scale = ($11 - 64) / start; next }
        ($11 - 64 - scale * start) ^ 2 > 0.2 || ($12 - scale * (end - start)) ^ 2 > 0.01' "$cells" "$cells" | head -n 3)"
    # A row is 20 high, or 11 with more than 16 ranks, and two overlapping jobs share it. It stands beside its rank's
    # name. Panels lie below each other.
    local row=20
    case $1 in *workers=64*) row=11 ;; esac
    sed -nE '/^<text class="p"/s/[^>]*>(.).*/\1/p; s/^<text class="l" .*y="([^"]*)">rank (.*)<.*/\1 \2/p' "$room/a.svg" |
        awk -v row=$row 'NF == 1 { panel = $1 } NF == 2 { print panel, $2, $1 - row / 2 - 3.6 }' >"$room/ranks"
    expect "$1: rows" "" "$(awk -v row=$row '
        NR == FNR { top[$1, $2] = $3; next }
        { above = $13 - top[$1, $1 == "A" ? $3 : $6]; if (above ^ 2 > 1e-6 && (above - row / 2) ^ 2 > 1e-6) print }
        $13 > foot[$1] { foot[$1] = $13 }
        END { if (foot["A"] >= top["B", 0] || foot["B"] >= top["d", 0]) print "panels overlap" }' "$room/ranks" "$cells" | head -n 3)"
    # Earlier or later, by the timelines themselves; a split backward goes by its input gradient. Blue shades have more
    # blue than red, red shades more red than blue. The largest shift is the darkest.
    awk 'NR == FNR { end[$1] = $4; next }
        { k = $1; if (!(k in end) && k ~ /I/) sub(/I/, "B", k); else if (!(k in end)) sub(/B/, "I", k) }
        { print $1, k in end ? $4 - end[k] : "none" }' <(rows "$room/a.tsv") <(rows "$room/b.tsv") >"$room/shifts"
    expect "$1: colours follow the sign and the size" "" "$(awk '
        function value(hex,   i, v) { for (i = 1; i <= length(hex); i++) v = v * 16 + index("0123456789abcdef", substr(hex, i, 1)) - 1; return v }
        NR == FNR { shift[$1] = $2; if ($2 != "none" && $2 * $2 > most) most = $2 * $2; next }
        $1 != "d" { next }
        {
            red = value(substr($10, 1, 2)); blue = value(substr($10, 5, 2)); s = shift[$2]
            if (s == "none" ? $10 != "d9d9d9" : s == 0 ? $10 != "f7f7f7" : s > 0 ? red <= blue : red >= blue) print $0, s
            else if (s != "none" && s * s == most && most && $10 != (s > 0 ? "b2182b" : "2166ac")) print "not the darkest:", $0
            else if (s != "none" && s != $9 && (s - $9) ^ 2 > 1e-6) print "the tooltip:", $0, s
        }' "$room/shifts" "$cells" | head -n 3)"
    local joined=$(($(drawn moved) + $(drawn reordered)))
    expect "$1: lines join moved and reordered jobs" "$joined" "$(grep -c '^<path class="j' "$room/a.svg")"
    expect "$1: these jobs are framed on both sides" \
        $((2 * joined)) "$(grep '^<rect class="v' "$room/a.svg" | grep -vc '<text')"
    # Compares midpoints to a tenth of a unit, the precision of coordinates with two decimals.
    sed -nE '/^<text class="p"/s/[^>]*>(.).*/\1/p; /<text/!s/^<rect class="v.* x="([^"]*)" y="[^"]*" width="([^"]*)".*/\1 \2/p' \
        "$room/a.svg" | awk 'NF == 1 { panel = $1 } NF == 2 { printf "%s %.1f\n", panel, $1 + $2 / 2 + 0.001 }' | sort -u >"$room/frames"
    expect "$1: a line goes from frame to frame" "" "$(sed -nE 's/^<path class="j.* d="M([^ ]*) [^c]*c0 [^ ]* [^ ]* [^ ]* ([^ ]*) .*/\1 \2/p' "$room/a.svg" |
        awk '{ printf "A %.1f\nB %.1f\n", $1 + 0.001, $1 + $2 + 0.001 }' | sort -u | diff - "$room/frames" | head -n 3)"
    expect "$1: jobs on one side only have a corner" $(($(drawn only_a) + $(drawn only_b))) "$(grep -c '^<path class="e' "$room/a.svg")"
}

cat >"$room/place.lua" <<'P'
local p = params { swap = 0 }
local function at(s) return p.swap == 1 and s < 2 and 1 - s or s end
return schedule { workers = 3, stages = 3, batches = 4, w = function(s, b, d) return at(s), at(s) end, n = backward_first }
P
"$PIANOLA" compile "$room/place.lua" -o "$room/straight"
while IFS='|' read -r a b options; do
    what="$a and $b $options"
    for side in a b; do
        if [ -d "${!side}" ]; then
            cp "${!side}/timeline.tsv" "$room/$side.tsv"
        else
            "$PIANOLA" show "${!side}" $options --format tsv >"$room/$side.tsv"
        fi
    done
    "$PIANOLA" diff "$a" "$b" $options --json --svg "$room/a.svg" --html "$room/a.html" >"$room/out.json"
    expect "$what: they differ" 1 $?
    "$PIANOLA" diff "$a" "$b" $options --svg "$room/b.svg" --html "$room/b.html" >/dev/null
    expect "$what: the same bytes twice" "" "$(cmp "$room/a.svg" "$room/b.svg" 2>&1; cmp "$room/a.html" "$room/b.html" 2>&1)"
    looks_right "$what"
    expect "$what: the page has the same operations, with the same tooltips" "" \
        "$(diff <(sed -nE 's/^<rect class="o.*<title>(.*)<\/title.*/\1/p' "$room/a.svg" | sort -u) <(page_lines "$room/a.html" | grep '; in [AB] rank' | sort -u) | head -n 3)"
    expect "$what: nothing from the network" "http://www.w3.org/2000/svg" \
        "$(grep -ohE 'https?:[^" ]*' "$room/a.html" "$room/a.svg" | sort -u)"
    well_formed "$what" "$room/a.svg"
    case $what in *workers=64*) as_png "$what" "$room/a.svg" -w 2000 ;; *) as_png "$what" "$room/a.svg" ;; esac
done <<P
schedules/1f1b.lua|schedules/zb_h1.lua|
schedules/gpipe.lua|schedules/1f1b.lua|$L -D latency=0.5 -D bandwidth=4
schedules/interleaved.lua|schedules/dualpipev.lua|
$room/straight|$room/place.lua|-D swap=1
schedules/1f1b.lua|schedules/zb_h1.lua|-D workers=64 -D batches=64
P
mv "$room/a.html" "$room/large.html"
expect "64 ranks: three panels of rows 17 and 13 high" "yes 128" "$(sed -nE '1s/.*height="([0-9.]+)".*/\1/p' "$room/a.svg" |
    awk '{ print $1 <= 64 * (17 + 17 + 13) + 320 ? "yes" : $1 }') $(grep -c '^<g class="f">' "$room/a.svg")"

# Okabe and Ito's blue and green at 30 % over white: forwards only shift, and jobs with another backward stand out.
"$PIANOLA" diff $S schedules/zb_h1.lua --svg "$room/a.svg" >/dev/null
not_faded() { cells "$room/a.svg" | awk '$1 != "d" && $10 !~ /^(b3d5e8|b3e2d5)$/'; }
expect "jobs that are not faded" "32 A B 009e73,32 B I 56b4e9,32 B W cc79a7" \
    "$(not_faded | awk '{ gsub("[0-9]", "", $2); print $1, $2, $10 }' | sort | uniq -c | awk '{ $1 = $1; print }' | paste -sd,)"
# Only a timeline, in which one job takes a unit longer: that job is not faded and is the root of all shifts.
sed 's/^0\tcompute\t\([0-9.]*\)\t\([0-9.]*\)\tB\t0\t7/0\tcompute\t\1\t34\tB\t0\t7/; s/^0\tcompute\t33\t33\tU/0\tcompute\t34\t34\tU/' \
    generated/1f1b/timeline.tsv >"$room/late.tsv"
"$PIANOLA" diff generated/1f1b "$room/late.tsv" --svg "$room/a.svg" >/dev/null
expect "all jobs but the longer one are faded" \
    "A 0B7 009e73,B 0B7 009e73" "$(not_faded | awk '{ print $1, $2, $10 }' | paste -sd,)"
expect "the longer job's tooltip" "0B7: full backward of stage 0, microbatch 7; in A rank 0, 31 to 33 units; in B rank 0, 31 to 34 units; ends +1 unit; \
takes +1 unit; a root: pushed 1; on the critical path of A and B" "$(sed -nE 's/.*<title>(0B7.*)<\/title.*/\1/p' "$room/a.svg" | sort -u)"
expect "memory only on a side with a program" "4 0" "$(awk '/class="p"/ { n++ } /class="u" d/ { a[n]++ } END { print a[1] + 0, a[2] + 0 }' "$room/a.svg")"
expect "the title" "makespan 33 → 34 units (+3.0 %); 1 longer or shorter, 2 shifted" "$(sed -nE 's/.*y="34">(.*)<\/text>/\1/p' "$room/a.svg")"
expect "the scale" "-1 unit 0 +1 unit" "$(sed -nE '/class="a"/s/<[^>]*>/ /gp' "$room/a.svg" | grep unit | paste -sd' ' | tr -s ' ' | sed 's/^ //; s/ $//')"

# It takes a little longer: the page names the same small shift, although nearly all times are whole units.
sed 's/\b34\b/33.00001234/g' "$room/late.tsv" >"$room/near.tsv"
"$PIANOLA" diff generated/1f1b "$room/near.tsv" --svg "$room/a.svg" --html "$room/a.html" >/dev/null
expect "a small shift" "0B7: full backward of stage 0, microbatch 7; in A rank 0, 31 to 33 units; in B rank 0, 31 to 33 units; ends +1.234e-05 units; \
takes +1.234e-05 units; a root: pushed 1; on the critical path of A and B" "$(page_lines "$room/a.html" | grep '^0B7' | sort -u)"

# With free links, the outlined jobs follow each other without a gap from the beginning to the end.
"$PIANOLA" diff $S schedules/zb_h1.lua --svg "$room/a.svg" >/dev/null
outlined() { # PANEL: prints starts and ends
    sed -nE '/^<text class="p"/s/[^>]*>(.).*/panel \1/p; s/^<rect class="o c".*<title>//p' "$room/a.svg" |
        awk -v p="$1" '/^panel/ { at = $2 } at == p' | sed -nE "s/.*in $1 rank [0-9]*, ([0-9]*) to ([0-9]*) .*/\1 \2/p" | sort -n
}
for side in A:33 B:27; do
    expect "the critical path of $side" "${side#*:}" "$(outlined ${side%:*} | awk '$1 != 0 + end { print "gap before", $1 } { end = $2 } END { print end }')"
done

# It is the path that show outlines, even if others are as long.
critical() { sed -nE 's/^<rect class="o c".*<title>([^:;]*).*/\1/p' | sort; }
for x in gpipe 1f1b zbv dualpipev lpp; do
    for links in "" "$L"; do
        "$PIANOLA" diff schedules/$x.lua schedules/2bp.lua $links --svg - | sed -n '/"p"[^>]*>A</,/"p"[^>]*>B</p' | critical >"$room/path"
        expect "$x $links: the path that show outlines" "" "$("$PIANOLA" show schedules/$x.lua $links --format svg | critical | diff - "$room/path" | head -n 3)"
    done
done

# Limits come from the scripts.
echo 'return cluster { memory = 13 }' >"$room/limit.lua"
"$PIANOLA" diff generated/1f1b schedules/gpipe.lua --cluster "$room/limit.lua" --svg "$room/a.svg" >/dev/null
expect "the limit under B's ranks" "0 4" "$(awk '/class="p"/ { n++ } /the limit: 13 B/ { a[n]++ } END { print a[1] + 0, a[2] + 0 }' "$room/a.svg")"

# The picture may come with the text or replace it; the exit codes stay the same.
"$PIANOLA" diff $S $S >"$room/text"
"$PIANOLA" diff $S $S --svg "$room/a.svg" >"$room/text2"
expect "a schedule and itself: exit code and text" "0 " "$? $(cmp "$room/text" "$room/text2" 2>&1)"
expect "the picture on stdout" "" "$("$PIANOLA" diff $S $S --svg - | cmp - "$room/a.svg" 2>&1)"
expect "nothing shifts: no scale" 1 "$(grep -c 'no job ends earlier or later' "$room/a.svg")"
error() { "$PIANOLA" diff "$@" 2>&1 >/dev/null | sed 's/^pianola: error: //'; }
expect "a side without times" "generated/1f1b/streams.txt: a picture needs times, and this has none; give the script, the compiled folder or timeline.tsv" \
    "$(error generated/1f1b $(echo generated/1f1b/streams.txt) --svg "$room/none.svg")"
expect "a side without times: nothing written" "" "$(ls "$room/none.svg" 2>/dev/null)"
expect "two outputs to stdout" \
    "two outputs would go to stdout: name another file for one" "$(error $S $S --svg - --json)"
expect "two outputs to one file" "two outputs would go to $room/two: name another file for one" \
    "$(error $S $S --svg "$room/two" --html "$room/two")"
expect "a folder as output" "$room: Is a directory" "$(error $S $S --svg "$room/none.svg" --html "$room")"
expect "a folder as output: nothing written" "" "$(ls "$room/none.svg" 2>/dev/null)"
expect "a missing folder" "$room/none/a.svg: No such file or directory" "$(error $S $S --svg "$room/none/a.svg")"

# Pages, tested in a browser. Pointing at 0B0 lights it in A and B, its inputs in both, and the reordered job at its
# root, which the text names too. At a job that only one side has, it lights that job and its inputs.
hover='const say = (name, key, side = 0) => {
    const t = view.frame.timeline, name_of = i => "ab"[rowOf(t, i).side] + nameOf(t, i);
    let i = t.sides[side].first;
    while (nameOf(t, i) !== name) i++;
    dispatchEvent(new KeyboardEvent("keydown", { key: "Escape" }));
    const box = view.boxes(i)[0], canvas = view.parts.rows.getBoundingClientRect();
    const at = { clientX: canvas.left + box.x + box.w / 2, clientY: canvas.top + box.y + box.h / 2, bubbles: true, pointerId: 1 };
    view.parts.rows.dispatchEvent(new PointerEvent("pointermove", at));
    const p = view.frame.place, needs = p.needs.map(([, j]) => name_of(needsOf(t).op[j]) + " need");
    document.body.dataset[key] = [...new Set([...needs, ...[p.op, ...p.twins].map(k => name_of(k) + " this"), ...(p.root >= 0 ? [name_of(p.root) + " root"] : [])])].sort().join(", ");
};'
data() { sed -nE "s/.*data-$1=\"([^\"]*)\".*/\1/p" "$room/dom"; }
"$PIANOLA" diff --all schedules/gpipe.lua $S --html "$room/page.html" >"$room/text"
ask "$room/page.html" >"$room/dom" <<P
$hover
say('3F7', 'moved'); say('0B0', 'pushed');
P
expect "a page: the joined job is lit on both sides" "a2F7 need, a3F7 this, b2F7 need, b3F7 this" "$(data moved)"
expect "a page: a pushed job, its inputs and its root are lit" "a0B0 this, a0F0 need, a1B0 need, a3F7 root, b0B0 this, b0F0 need, b1B0 need" "$(data pushed)"
expect "a page: the root that the text names" "~ rank 3 3F7 ends +14 units; critical; pushed 70" \
    "$(sed -n '/^Roots/,$p' "$room/text" | grep -m 1 ' 3F7 ' | tr -s ' ')"
expect "a page: the panel describes the job under the mouse" 1 "$(grep -c 'class="v-info"[^>]*>0B0: full backward of stage 0.*pushed by 3F7 of rank 3' "$room/dom")"
expect "a page: the panel lists the needs in A and B, and the root" "needs 0F0,needs 1B0,root: 3F7" \
    "$(sed -n '/class="v-info"/,/<\/pre>/p' "$room/dom" | sed -nE 's/^((needs|root:) [^:]*).*/\1/p' | sort -u | paste -sd,)"
ask "$room/large.html" >"$room/dom" <<P
$hover
say('1F63', 'both'); say('63W5', 'one', 1);
P
expect "64 ranks" "a0F63 need, a1B0 root, a1F63 this, b0F63 need, b1F63 this" "$(data both)"
expect "64 ranks: a job in B only" "b63I5 need, b63W5 this" "$(data one)"
expect "no browser is left" "" "$(browsers_left)"
# Relations between the sides repeat, too: a page of 64,000 operations is smaller than 0.3 MB.
"$PIANOLA" diff $S schedules/zb_h1.lua -D workers=16 -D batches=800 --html "$room/large.html" >/dev/null
expect "a large diff" yes "$(stat -c %s "$room/large.html" | awk '{ print ($1 < 3e5 ? "yes" : $1) }')"
finish
