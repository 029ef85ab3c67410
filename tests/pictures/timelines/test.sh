#!/usr/bin/env bash
# Checks pictures of timelines, and the grid's optional parts, through the real command: the jobs and times of
# timeline.tsv, the same bytes for the same input, and pages without external files. Pictures are also rendered, and
# pages are opened in a browser and asked what they hold; tests/pictures/browser uses them.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
. tests/support/pictures.sh
L="--cluster schedules/clusters/latency.lua"
show() { "$PIANOLA" show "$@"; }

# jobs FILE: prints each job's rank, name, start and end, from tooltips and from coordinates, sorted.
jobs() { # FILE SCALE
    sed -nE 's/^<rect class="o[^>]* x="([^"]*)" y="([^"]*)" width="([^"]*)".*<title>([0-9]+[FRIBW][0-9]+): .*; rank ([0-9]+); ([^ ]*) to ([^ ]*) .*/\5 \4 \6 \7 \1 \3/p' "$1"
}
rows() { # prints rank, name, start and end from timeline.tsv
    awk -F '\t' '$2 == "compute" && $5 ~ /^[FRIBW]$/ { print $1, $6 $5 $7, $3, $4 }'
}
for args in "schedules/1f1b.lua" "schedules/dualpipe.lua" "schedules/zbv.lua -D workers=8 -D batches=16" "schedules/2bp.lua --recompute" \
    "schedules/1f1b.lua -D workers=64 -D batches=64" "schedules/fsdp.lua $L -D bandwidth=2"; do
    show $args --format svg >"$room/a.svg"
    show $args --format svg >"$room/b.svg"
    show $args --format html >"$room/a.html"
    expect "$args: the same bytes twice" "" "$(cmp "$room/a.svg" "$room/b.svg" 2>&1)"
    expect "$args: jobs and times are the timeline's" "" \
        "$(diff <(jobs "$room/a.svg" | cut -d' ' -f1-4 | sort) <(show $args --format tsv | rows | sort) | head -n 3)"
    # x = 64 + scale * start; the first job that starts after 0 gives the scale.
    expect "$args: jobs are drawn at their times" "" "$(jobs "$room/a.svg" | awk '
        { if (!scale) scale = $6 / ($4 - $3); x = 64 + scale * $3; w = scale * ($4 - $3) }
        ($5 - x) ^ 2 > 0.2 || ($6 - w) ^ 2 > 0.01 { print; exit }')"
    expect "$args, the page: jobs and times are the timeline's" "" \
        "$(diff <(page_lines "$room/a.html" | sed -nE 's/^([0-9]+[FRIBW][0-9]+): .*; rank ([0-9]+); ([^ ]*) to ([^ ]*) .*/\2 \1 \3 \4/p' | sort) \
            <(show $args --format tsv | rows | sort) | head -n 3)"
    expect "$args: nothing from the network" "http://www.w3.org/2000/svg" \
        "$(grep -ohE '(https?:)?//[a-z][^"]*\.[^" ]*' "$room/a.html" "$room/a.svg" | sed 's/^\/\/.*//' | sort -u | grep .)"
    well_formed "$args" "$room/a.svg"
    as_png "$args" "$room/a.svg"
done

# Many ranks. Equal ranks share a row, others have one each, and many rows are low. Every rank's jobs, times and peak
# memory are still shown.
each() { # Prints the ranks of each title on stdin, one per line, each followed by the rest of the title.
    awk '
        match($0, /ranks? [0-9][0-9–, ]*/) {
            n = split(substr($0, RSTART + 5, RLENGTH - 5), part, /s? |, /)
            for (i = 1; i <= n; i++) {
                if (part[i] !~ /^[0-9]/) continue
                m = split(part[i], run, "–")
                for (r = run[1]; r <= run[m] + 0; r++) print r "|" $0
            }
        }'
}
cat >"$room/strided.lua" <<'P'
-- Teams that others follow in another order: member i of stage s is rank s + 8 ((i + s) mod 4).
local function team(s) local own = {} for i = 0, 3 do own[i + 1] = s + 8 * ((i + s) % 4) end return own end
return schedule { workers = 32, stages = 8, batches = 4, w = function(s, b, d) return team(s), team(s) end, n = backward_first }
P
cat >"$room/homes.lua" <<'P'
-- Ranks 10 to 19 compute nothing; 10 to 14 have weights, of one stage each, 15 to 19 of two.
return schedule { workers = 20, stages = 30, batches = 4, n = backward_first,
  w = function(s, b, d) return s < 5 and 10 + s or s < 15 and 15 + s % 5 or s % 10, s % 10 end }
P
while IFS='|' read -r rows low team args; do
    show $args --format svg >"$room/a.svg"
    show $args --format html >"$room/a.html"
    sed -nE 's/^(<g|<rect|<path)[^>]*><title>//p' "$room/a.svg" | sed 's/<\/title.*//' >"$room/a.svg.lines"
    page_lines "$room/a.html" >"$room/a.html.lines"
    for file in a.svg a.html; do
        each <"$room/$file.lines" >"$room/each"
        expect "$args, $file: every rank's jobs, at their times" "" "$(sed -nE 's/^([0-9]+)\|([0-9]+)(\.[0-9]+)?([FRIBW])([0-9]+): .*; ([^ ;]*) to ([^ ]*) .*/\1 \2\4\5 \6 \7/p' \
            "$room/each" | sort | diff - <(show $args --format tsv | awk -F '\t' -v OFS='\t' -v team=$team 'NR > 1 { $6 = int($6 / team) } 1' | rows | sort) | head -n 3)"
        expect "$args, $file: every rank's peak" "$(ranks peak_bytes $args)" "$(sed -nE 's/^([0-9]+)\|.*of a plan of ([0-9]+) B$/\1 \2/p' "$room/each" |
            sort -n | cut -d' ' -f2 | paste -sd,)"
    done
    expect "$args: rows" "$rows" "$(grep -cE '^<text class="l( s)?" [^>]*>ranks? ' "$room/a.svg")"
    expect "$args: rows of the page" "$rows" "$(grep -c ': at most ' "$room/a.html.lines")"
    expect "$args: rows that are low" "$low" "$(grep -c '^<g class="f">' "$room/a.svg")"
    expect "$args: at most 25 high per row" yes "$(sed -nE '1s/.*height="([0-9.]+)".*/\1/p' "$room/a.svg" |
        awk -v rows=$rows -v low=$low '{ print $1 <= 120 + rows * (low ? 25 : 57) ? "yes" : $1 }')"
    well_formed "$args" "$room/a.svg"
done <<P
64|64|1|schedules/1f1b.lua -D workers=64 -D batches=64
32|32|2|schedules/dp_tp_pp.lua -D workers=64 -D batches=32
8|0|8|schedules/1f1b.lua -D workers=8 -D batches=4 -D tensor=8
8|0|4|$room/strided.lua
12|0|1|$room/homes.lua
16|0|1|schedules/1f1b.lua -D workers=16 -D batches=4
16|0|2|schedules/1f1b.lua -D workers=8 -D batches=4 -D tensor=2
17|17|1|schedules/1f1b.lua -D workers=17 -D batches=4
P
expect "labels" "ranks 0, 8, …,ranks 1, 9, …,ranks 2, 10, …,ranks 3, 11, …" "$(show "$room/strided.lua" --format svg |
    sed -nE 's/^<text class="l s".*>(ranks .*)<.*/\1/p' | head -n 4 | paste -sd,)"
show schedules/1f1b.lua -D workers=8 -D batches=4 -D tensor=8 --format svg --with lanes >"$room/a.svg"
expect "lanes are each rank's own" 64 "$(grep -c '^<text class="l" .*>rank ' "$room/a.svg")"
# Folded bands last as long as the grid's bars of that height, in eighths of the largest plan. An F takes 1.
show schedules/1f1b.lua -D workers=17 -D batches=4 --format svg >"$room/a.svg"
unit=$(sed -nE 's/^<rect class="o.* width="([0-9.]+)".*<title>0F0:.*/\1/p' "$room/a.svg")
sed -nE 's/^<g class="f"><title>(rank [0-9]+):.*<\/title>(.*)<\/g>/\1\2/p' "$room/a.svg" | sed 's/<path fill-opacity="/\n/g; s/"[^"]*d="/ /g; s/[MHvZ]/ /g' |
    awk -v unit="$unit" '/^rank/ { rank = $2; next } { t = 0; for (i = 2; i + 4 <= NF; i += 5) t += $(i + 2) - $i; printf "%d %d %.0f\n", rank, $1 * 8, t / unit }' |
    sort >"$room/folded"
# A unit is three columns of the grid.
show schedules/1f1b.lua -D workers=17 -D batches=4 --with memory --width 1000 | sed -nE 's/^(rank [0-9]+) .*/\1/p; s/^ memory +//p' |
    sed 's/ /0/g; s/▁/1/g; s/▂/2/g; s/▃/3/g; s/▄/4/g; s/▅/5/g; s/▆/6/g; s/▇/7/g; s/█/8/g; s/^rank0/rank /' | awk '
        /^rank/ { rank = $2; next }
        { n = split($0, bar, ""); split("", t); for (i = 1; i <= n; i++) t[bar[i]]++; for (b in t) if (b > 0) print rank, b, t[b] / 3 }' | sort >"$room/bars"
expect "folded bands equal the grid's bars" "" "$(diff "$room/bars" "$room/folded" | head -n 5)"

# Memory: tests/papers/figures checks 1F1B's live activations; here, the peaks of the curves equal the plan's.
expect "1f1b: peak memory and plan" \
    "7 B of 7 B,8 B of 8 B,7 B of 7 B,5 B of 5 B" "$(show schedules/1f1b.lua --format svg |
    sed -nE 's/.*at most (.*) in use, of a plan of (.*)<\/title.*/\1 of \2/p' | paste -sd,)"
cat >"$room/limit.lua" <<'L'
return cluster { memory = 9 }
L
limits() { show schedules/1f1b.lua --cluster "$room/limit.lua" --format svg | grep -c "the limit:$1"; }
expect "a limit under each rank" "4 4" "$(limits " 9 B") $(limits "")"
expect "no limit line without a limit" 0 "$(show schedules/1f1b.lua --format svg | grep -c 'limit')"

# A page's data also name a team's job by its member where the team's ranks have rows of their own, and without it where
# they share one: stage 0's rank 0 also computes stage 16.
cat >"$room/own.lua" <<'EOF'
return schedule { workers = 18, stages = 17, batches = 2, w = function(s)
  local team = s == 0 and { 0, 1 } or s == 1 and { 2, 3 } or s == 16 and { 0 } or { s + 2 }
  return team, team end }
EOF
expect "jobs of teams with one row and with several" '"0.0F","",0 "0.1F","",0 "1F","",1' \
    "$(show "$room/own.lua" --format html | grep -oE '"(0\.0|0\.1|1|1\.[01])F","",[0-9]+' | paste -sd' ')"

# Labels of a page are right to the digits they show, also where no job takes as long as another: in thousandths, which
# a page can hold exactly, and in sevenths, which it rounds.
labels_off() { # prints the jobs on stdin whose labels differ from the times by more than half of the last digit
    awk '
        function off(label, t,   unit) {
            unit = t >= 1000 ? 1 : t > 0 ? 10 ^ (int(log(t) / log(10) + 1000) - 1003) : 0
            return (label - t) ^ 2 > (0.50001 * unit + 3e-6) ^ 2
        }
        NR == FNR { start[$1, $2] = $3; end[$1, $2] = $4; n++; next }
        !(($1, $2) in start) || off($3, start[$1, $2]) || off($4, end[$1, $2]) { print }
        { n-- }
        END { if (n) print n, "jobs are missing" }' <(show "$1" --format tsv | rows) -
}
for part in 1000 7; do
    cat >"$room/irregular.lua" <<EOF
return schedule { workers = 6, stages = 6, batches = 40, w = function(s) return s, s end, n = backward_first,
  cost = function(s, b) return 1 + (s * 7919 + b * 104729) % 1000 / $part end }
EOF
    show "$room/irregular.lua" --format html >"$room/a.html"
    page_lines "$room/a.html" | sed -nE 's/^([0-9]+[FRIBW][0-9]+): .*; rank ([0-9]+); ([^ ]*) to ([^ ]*) .*/\2 \1 \3 \4/p' >"$room/labels"
    expect "irregular costs, in parts of $part: labels" "480 " "$(wc -l <"$room/labels") $(labels_off "$room/irregular.lua" <"$room/labels" | head -n 3)"
done

# Messages that a page names are the picture's arrows, at the same times.
for args in "schedules/1f1b.lua $L -D latency=2" "schedules/zbv.lua $L -D bandwidth=2" "schedules/seq1f1b.lua $L -D latency=1" "schedules/fsdp.lua $L -D bandwidth=2"; do
    show $args --format svg --with sends | sed -nE 's/^<path class="m".*<title>(.*)<\/title.*/\1/p' | sort -u >"$room/arrows"
    show $args --format html >"$room/a.html"
    page_messages "$room/a.html" | sort -u >"$room/messages"
    expect "$args: there are messages" yes "$([ -s "$room/messages" ] && echo yes)"
    expect "$args: messages of the page" "" "$(comm -13 "$room/arrows" "$room/messages" | head -n 3)"
done

# Messages as arrows, on request.
arrows() { show schedules/1f1b.lua "$@" | grep -c '^<path class="m"'; }
expect "arrows" "0 48" "$(arrows --format svg) $(arrows --format svg --with sends)"
expect "an arrow's tooltip" "act(0,0), 1 B, from rank 0 to rank 1; 1 to 3 units" "$(show schedules/1f1b.lua $L -D latency=2 \
    --format svg --with sends | sed -nE 's/.*<title>(act\(0,0\), .*)<\/title.*/\1/p')"

# Lanes show every message that takes time, once on each side.
expect "lanes" "$(show schedules/1f1b.lua $L -D bandwidth=2 --format tsv | grep -cE 'SEND|RECV')" \
    "$(show schedules/1f1b.lua $L -D bandwidth=2 --format svg --with lanes | grep -cE '^<rect class="o.*<title>(SEND|RECV)')"

expect "a large group's lane" "group of 8" "$(show schedules/ddp.lua $L -D bandwidth=2 --ascii --with lanes | sed -nE '3s/ ([^.]*[^. ]) .*/\1/p')"
expect "a large group's lanes, of both kinds" "gather of 8 group of 8" \
    "$(show schedules/fsdp.lua $L -D bandwidth=2 --with lanes --format svg | grep -oE '>(gather|group) [^<]*' | sort -u | tr -d '>' | paste -sd' ')"

# Colours: one per kind, microbatch or stage, as requested.
colors() { show schedules/interleaved.lua -D batches=4 --format svg "$@" | grep '^<rect class="o' | grep -oE 'fill="#[0-9a-f]*"' | sort -u | wc -l; }
expect "colours by op, mb, stage" "2 8 16" "$(colors) $(colors --color-by mb) $(colors --color-by stage)"
expect "Okabe and Ito's colours" "#0072b2 #009e73" "$(show schedules/1f1b.lua --format svg | sed -nE 's/^<rect class="o[^#]*(#[0-9a-f]*).*/\1/p' | sort -u | paste -sd' ')"

# A part of the time shows exactly the jobs that overlap it.
expect "from 3 to 6" "0B0 1B0 1B1 1F1" "$(show schedules/1f1b.lua -D workers=2 -D batches=2 --format svg --from 3 --to 6 |
    sed -nE 's/.*<title>([0-9][FB][0-9]):.*/\1/p' | LC_ALL=C sort | paste -sd' ')"
expect "the grid, from 3 to 6" "time    3|rank 0   . B0---|rank 1  B0 F1 B1" "$(show schedules/1f1b.lua -D workers=2 -D batches=2 --ascii \
    --from 3 --to 6 | head -n 3 | paste -sd'|')"

expect "a page, to far beyond the end" '"to":33' "$(show schedules/1f1b.lua --format html --to 1e10 | grep -o '"to":[-0-9]*')"

# The grid with every option. A message takes 1, as an F does.
cat >"$room/grid" <<'G'
time     0              5              10
rank 0   F0 F1  .  .  .  . B0---  . B1---
 path    ^^^                        ^^^^^^
 send 1   . F0 F1  .  .  .  .  .  .  .  .
 recv 1   .  .  .  .  . B0  .  . B1  .  .
 memory  666999888666666888888888666666666
rank 1    .  . F0 B0--- F1 B1---  .  .  .
 path          ^^^^^^^^^^^^^^^^^^
 send 0   .  .  .  .  . B0  .  . B1  .  .
 recv 0   . F0 F1  .  .  .  .  .  .  .  .
 memory  333555888888888888666666555333333

         F forward   B full backward   . idle
         1 cell = 1 unit; the numbers are microbatches
         memory in use: 9 is 6 B, the largest plan
         ^ on the critical path
G
grid() { show schedules/1f1b.lua -D workers=2 -D batches=2 $L -D bandwidth=1 --with lanes,memory,path "$@"; }
expect "the grid with lanes, memory and path" "" "$(diff "$room/grid" <(grid --ascii | head -n 16))"
expect "the same grid without --ascii" \
    "$(sed -n '3s/\^/▔/gp' "$room/grid")| memory  ▆▆▆███▇▇▇▆▆▆▆▆▆▇▇▇▇▇▇▇▇▇▆▆▆▆▆▆▆▆▆" \
    "$(grid | sed -n '3p;6p' | paste -sd'|')"
grounds() { show schedules/1f1b.lua --color always "$@" | sed '/^$/,$d' | grep -oE '48;5;[0-9]+' | sort -u | wc -l; }
# Two shades of F alternate where two Fs touch, which never happens on the last rank. B has one; each microbatch has a
# hue.
expect "the grid's colours by op, stage and mb" "3 11 18" "$(grounds) $(grounds --color-by stage) $(grounds --color-by mb)"

error() { "$PIANOLA" show schedules/1f1b.lua "$@" 2>&1 >/dev/null | sed 's/^pianola: error: //'; }
expect "--with" "--with line: expected lanes, memory, path or sends; did you mean lanes?" "$(error --with path,line)"
expect "--with sends" "--with sends: only pictures have arrows, --format svg or html; try --with lanes" "$(error --with sends)"
expect "--color-by" "--color-by rank: expected op, mb or stage" "$(error --color-by rank)"
expect "--from" "--from -1: expected a time of at least 0" "$(error --from -1)"
expect "--from beyond" "--from 99: the timeline ends at 33 units" "$(error --from 99)"
expect "--to" "--to 3: not after --from 3" "$(error --from 3 --to 3)"
expect "a format that is not drawn" "--with, --color-by, --from and --to are for formats that are drawn: --format grid, svg or html" "$(error --format tsv --to 3)"

# 51,200 jobs: takes seconds if the title is the first child, minutes otherwise.
show schedules/1f1b.lua -D workers=64 -D batches=400 --format svg >"$room/large.svg"
timeout -k 5 60 "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --user-data-dir="$room/browser" \
    --dump-dom "file://$room/large.svg" >"$room/dom" 2>"$room/browser.log"
expect "a large picture opens" "0 51200" "$? $(grep -o '<rect class="o' "$room/dom" | wc -l)"
expect "a page: no browser is left" "" "$(browsers_left)"
finish
