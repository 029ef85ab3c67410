#!/usr/bin/env bash
# Checks `pianola frontier` against known curves. Each point equals the result of `optimal` under that cap, and no
# schedule lies below its curve.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
. tests/support/pictures.sh
room=$(mktemp -d) || exit 2
trap 'rm -rf "$room"' EXIT
caps=tests/search/optimal/caps.lua
v=(-D chunks=2 -D v=true -D split=true)

# points ARGS...: prints the proved makespans, or the error.
points() { "$PIANOLA" frontier "$@" --json 2>"$room/stderr" >"$room/json" || { cat "$room/stderr"; return; }
    python3 - "$room/json" 2>&1 <<'PY'
import json, sys
curve = json.load(open(sys.argv[1]))["points"]
assert [p["cap"] for p in curve] == list(range(1, len(curve) + 1))
print(*(("-" if p["makespan"] is None else p["makespan"]) if p["optimal"] and p["makespan"] == p["lower_bound"]
        else "%s..%s" % (p["lower_bound"], p["makespan"]) for p in curve))
PY
}

# 4 ranks, 8 microbatches; F = 1 and B = 2, or F = I = W = 1
expect "unsplit" "96 51 39 33" "$(points $caps)"
expect "split" "72 41 31 27" "$(points $caps -D split=true)"
expect "split backwards in a V" "- 101 86 59 56 53 52 51" "$(points $caps "${v[@]}" schedules/v_min.lua schedules/v_half.lua schedules/zbv.lua)"
expect "known schedules of the V" "v_min 4 59, v_half 6 53, zbv 8 51" "$(python3 -c '
import json, sys
print(", ".join("%s %s %s" % (k["schedule"], k["peak"], k["makespan"]) for p in json.load(open(sys.argv[1]))["points"] for k in p["known"]))' "$room/json")"
expect "a script's own cap is ignored" "96 51 39 33" "$(points $caps -D caps=2)"
expect "8 ranks" "272 145 102 79 68 61 58 55" "$(points $caps -D workers=8 -D batches=16 -D split=true)"

# Each point equals the result of optimal with the cap in the script.
latency=(--cluster schedules/clusters/latency.lua -D latency=1)
expect "a latency of 1, one cap at a time" "$(for cap in 1 2 3 4 5 6; do
    "$PIANOLA" optimal $caps -D caps=$cap "${latency[@]}" --json | sed -nE 's/.*"makespan": ([^,]*).*/\1/p'
done | paste -sd' ')" "$(points $caps "${latency[@]}")"
expect "more room does not help" 39 "$("$PIANOLA" optimal $caps -D caps=99 "${latency[@]}" --json | sed -nE 's/.*"makespan": ([^,]*).*/\1/p')"

# No schedule lies below the curve of its own jobs. Takes makespans and peaks from `show`.
for script in schedules/*.lua; do
    [[ $(points "$script" --time 1) != *"searched"* ]] || continue
    expect "$script: on its curve or above it" "" "$(python3 - "$room/json" "$(figure makespan "$script")" \
        "$(ranks peak_activations "$script")" 2>&1 <<'PY'
import json, sys
inf = float("inf")
curve, makespan, peak = json.load(open(sys.argv[1]))["points"], float(sys.argv[2]), max(map(int, sys.argv[3].split(",")))
known, last = next(k for p in curve for k in p["known"]), None
if known["makespan"] != makespan or known["peak"] != peak:
    print("marked at", known, "but show says", peak, makespan)
for point in curve:
    for key in "makespan", "lower_bound":
        point[key] = inf if point[key] is None else point[key]
    if last and not (point["makespan"] <= last["makespan"] and point["lower_bound"] <= last["lower_bound"]):
        print("with more room it takes longer:", last, point)
    if not point["lower_bound"] <= point["makespan"]:
        print("below its bound:", point)
    last = point
reached = curve[min(peak, len(curve)) - 1]
if makespan < reached["lower_bound"] - 1e-9:
    print("below the curve:", reached)
PY
)"
done

# Each point is a schedule with its certificate.
"$PIANOLA" frontier $caps "${v[@]}" --json -o "$room/points" >"$room/json"
expect "scripts" "cap_2.lua cap_3.lua cap_4.lua cap_5.lua cap_6.lua cap_7.lua cap_8.lua" "$(cd "$room/points" && echo *.lua)"
for cap in 1 2 3 4 5 6 7 8; do
    "$PIANOLA" check-bound "$room/points/cap_$cap.bound" >"$room/bound" 2>&1
    expect "cap $cap: the certificate" 0 $?
    [[ $cap = 1 ]] && continue
    point=$room/points/cap_$cap.lua
    expect "cap $cap: makespan, and live activations" "$(python3 -c '
import json, sys
p = json.load(open(sys.argv[1]))["points"][int(sys.argv[2]) - 1]
print(p["makespan"], p["cap"], p["script"], p["certificate"])' "$room/json" $cap)" \
        "$(figure makespan "$point") $(ranks peak_activations "$point" | tr , '\n' | sort -n | tail -1) $point $room/points/cap_$cap.bound"
    expect "cap $cap: the bound" "$(figure makespan "$point")" "$(sed -nE 's/.* ends before ([0-9]+) .*/\1/p' "$room/bound")"
    expect "cap $cap: trains to the bits of one rank" 1 \
        "$("$PIANOLA" run "$point" --model schedules/models/integers.lua --steps 1 --compare 2>&1 | grep -c 'equal bit for bit')"
done

# Over bytes: each point fits its memory, and one byte less admits nothing as fast, as optimal confirms with that limit.
gpt=(schedules/1f1b.lua --model schedules/models/gpt.lua)
"$PIANOLA" frontier "${gpt[@]}" schedules/gpipe.lua --bytes --json -o "$room/bytes" --svg "$room/bytes.svg" >"$room/bytes.json"
well_formed "the picture over bytes" "$room/bytes.svg"
expect "its axes" "MiB of a rank, at most; makespan in GFLOP" \
    "$(sed -nE 's/^<text class="[at]".*>([^<]* (at most|in GFLOP))<.*/\1/p' "$room/bytes.svg" | paste -sd';' | sed 's/;/; /')"
expect "where points lie, by the axes" "" "$(python3 - "$room/bytes.svg" "$room/bytes.json" 2>&1 <<'PY'
import json, re, sys
svg, points = open(sys.argv[1]).read(), json.load(open(sys.argv[2]))["points"]
def axis(letter, place): # returns a function of a coordinate, from the labels of the first and the last grid line
    ticks = re.findall(r'class="g" d="M([\d.]+) ([\d.]+)%s[\d.]+"/><text [^>]*>([^<]+)<' % letter, svg)
    (a, x), (b, y) = [(float(t[place]), float(t[2])) for t in (ticks[0], ticks[-1])]
    return lambda at: x + (at - a) * (y - x) / (b - a)
room, time = axis("V", 0), axis("H", 1)
steps = re.findall(r'id="step-\d+" class="e" d="M([\d.]+) ([\d.]+)H', svg)
for point, (x, y) in zip(points, steps, strict=True):
    if abs(room(float(x)) * 2**20 / point["memory"] - 1) > 0.01 or abs(time(float(y)) * 1e9 / point["makespan"] - 1) > 0.01:
        print(point["memory"], point["makespan"], "at", room(float(x)), time(float(y)))
PY
)"
expect "over bytes: as many points as caps that help, as fast, all proved" "$(points "${gpt[@]}")" "$(python3 -c '
import json, sys
print(*(p["makespan"] for p in json.load(open(sys.argv[1]))["points"] if p["optimal"] and p["makespan"] == p["lower_bound"]))' "$room/bytes.json")"
last=inf
while read -r memory makespan script proof; do
    expect "$memory bytes: the script's makespan" "$makespan" "$("$PIANOLA" optimal "$script" "${gpt[@]:1}" --time 1 --json | sed -nE 's/.*"own": ([^,]*).*/\1/p')"
    expect "$memory bytes: the certificate" 0 "$("$PIANOLA" check-bound "$proof" >"$room/bound" 2>&1; echo $?)"
    expect "$memory bytes: the plan adds only messages and gaps" yes "$(ranks peak_bytes "$script" "${gpt[@]:1}" --memory least |
        tr , '\n' | awk -v m="$memory" '$1 > most { most = $1 } END { print (most >= m && most < m * 1.2 ? "yes" : most) }')"
    less=$("$PIANOLA" optimal "${gpt[@]}" --memory $((memory - 1)) --json 2>/dev/null)
    expect "one byte less than $memory: $last at best" "$last" "$(sed -nE 's/.*"lower_bound": ([^,]*).*/\1/p; s/.*no room.*|.*leave room for no order at all.*/inf/p' <<<"$less")"
    last=$makespan
done < <(python3 -c '
import json, sys
for p in json.load(open(sys.argv[1]))["points"]:
    print(p["memory"], p["makespan"], p["script"], p["certificate"])' "$room/bytes.json")
"$PIANOLA" frontier schedules/zb_h1.lua --model schedules/models/gpt.lua --bytes -D workers=3 -D batches=4 --json >"$room/caps.json" 2>"$room/stderr"
expect "over bytes a script's own caps are ignored: the last point is the best order without a cap" \
    "$(points schedules/zb_h1.lua --model schedules/models/gpt.lua -D workers=3 -D batches=4 | awk '{ print $NF }')" "$(python3 -c '
import json, sys
print(json.load(open(sys.argv[1]))["points"][-1]["makespan"])' "$room/caps.json" 2>&1)"
expect "known schedules are listed at the last point below their memory" "1f1b gpipe" "$(python3 -c '
import json, sys
print(*(k["schedule"] for k in json.load(open(sys.argv[1]))["points"][-1]["known"]))' "$room/bytes.json")"

# Jobs of unequal size are weighted by their share of the model.
expect "1F1B has half as many stages as the V" '{"schedule": "1f1b", "peak": 8, "makespan": 66}' \
    "$("$PIANOLA" frontier schedules/zbv.lua schedules/1f1b.lua --json | grep -o '{"schedule": "1f1b"[^}]*}')"
expect "it gets the size of the first script" '{"schedule": "1f1b", "peak": 6, "makespan": 45}' \
    "$("$PIANOLA" frontier schedules/zb_h1.lua schedules/1f1b.lua -D workers=6 -D batches=10 --json | grep -o '{"schedule": "1f1b"[^}]*}')"

# A search that is cut short reports it, and its bounds hold: with more time, the makespans are proved to be 201, 178
# and 111.
got=$(points $caps -D workers=6 -D batches=12 "${v[@]}" --time 1)
expect "cut short" yes "$([[ $got == *..* ]] && echo yes || echo "$got")"
expect "the optimum lies within the bounds" \
    "yes yes yes" "$(for i in 2 3 4; do cut -d' ' -f$i <<<"$got"; done | awk -F'[.][.]' '
    BEGIN { split("201 178 111", truth, " ") } { print $1 <= truth[NR] && truth[NR] <= $NF ? "yes" : $0 }' | paste -sd' ')"

"$PIANOLA" frontier $caps -D workers=6 -D batches=12 "${v[@]}" --time 1 --json -o "$room/cut" >"$room/json" 2>/dev/null
expect "each listed certificate proves its bound" "" "$(python3 -c '
import json, subprocess, sys
for p in json.load(open(sys.argv[2]))["points"]:
    got = json.loads(subprocess.run([sys.argv[1], "check-bound", p["certificate"], "--json"], capture_output=True).stdout or "{}")
    if not got.get("accepted") or (p["lower_bound"] is not None and got["limit"] != p["lower_bound"]):
        print(p["cap"], p["lower_bound"], p["certificate"], got)' "$PIANOLA" "$room/json" 2>&1)"

# Text output
cat >"$room/apart.lua" <<'END'
return schedule { workers = 2, stages = 2, batches = 2, w = function(s, b, d) return s, d == "F" and s or 1 - s end }
END
"$PIANOLA" frontier $caps "${v[@]}" schedules/v_min.lua schedules/zb_h1.lua "$room/apart.lua" --svg "$room/a.svg" >"$room/a" 2>"$room/stderr"
expect "no order fits" 1 "$(grep -c '^  1 .* no order fits$' "$room/a")"
expect "on the curve" 1 "$(grep -c '^  4  .* 59  .* 59  yes     v_min$' "$room/a")"
expect "above the curve" 1 "$(grep -c '^  8  .* 51  .* 51  yes     zb_h1 54' "$room/a")"
expect "a script that is left out, and nothing else on stderr" "pianola: left out: apart: 2 ranks and 2 microbatches, not 4 and 8" "$(cat "$room/stderr")"
well_formed "the picture" "$room/a.svg"
as_png "the picture" "$room/a.svg"
expect "a circle for each schedule" 2 "$(grep -c '^<circle' "$room/a.svg")"
expect "a step for each cap" 7 "$(grep '^<path class="z"' "$room/a.svg" | grep -o 'H' | wc -l)"
"$PIANOLA" frontier $caps "${v[@]}" schedules/v_min.lua schedules/zb_h1.lua "$room/apart.lua" --svg "$room/b.svg" --html "$room/b.html" >"$room/b"
expect "the same bytes twice" "" "$(cmp "$room/a" "$room/b" 2>&1; cmp "$room/a.svg" "$room/b.svg" 2>&1)"
expect "a page has the same curve" "" "$(sed -n '/<div id="picture">/,/<\/svg>/p' "$room/b.html" | sed 's/.*<div id="picture">//' | sed '/<\/svg>/q' | diff - "$room/b.svg" | head -n 3)"
expect "its steps have labels" "cap 4: makespan 59 units, optimal" "$(sed -nE 's/^<path id="step-3".*<title>(.*)<\/title>.*/\1/p' "$room/a.svg")"
expect "a page has the same figures" "" "$(sed -n '/<pre>/,/<\/pre>/p' "$room/b.html" | sed 's/.*<pre>//; /<\/pre>/d' | diff - "$room/a" | head -n 3)"

# The page has a timeline for each point and each known schedule; its steps and circles are the same as the timelines'.
# timelines PAGE: prints each timeline's place and end.
timelines() { python3 - "$1" <<'PY'
import json, re, sys
page = open(sys.argv[1]).read()
picture = set(re.findall(r'<(?:path|g) id="([^"]*)"', page))
for place, data in re.findall(r'<script type="application/json" data-place="([^"]*)" data-said="[^"]*">([^<]*)</script>', page):
    data = json.loads(data)
    unit = {"units": 1, "GFLOP": 1e9}[data["unit"]]
    print(place if place in picture else place + ", which the picture lacks", "%.9g" % (data["end"] * data["tick"] * unit))
PY
}
places() { sed -nE 's/.* data-place="([^"]*)" data-said=.*/\1/p' "$1" | paste -sd' '; }
ends() { while read -r place args; do echo "$place $(printf %.9g "$(figure makespan $args)")"; done; } # place, arguments of show
"$PIANOLA" frontier $caps "${v[@]}" --json -o "$room/points" schedules/v_min.lua schedules/zb_h1.lua "$room/apart.lua" >"$room/json" 2>/dev/null
expect "a timeline for each point that has an order, and each known schedule; the last point first" \
    "step-7 step-6 step-5 step-4 step-3 step-2 step-1 mark-0 mark-1" "$(places "$room/b.html")"
expect "each timeline takes as long as its point" "$(python3 -c '
import json, sys
points = json.load(open(sys.argv[1]))["points"]
print(*("step-%d %s" % (p["cap"] - 1, p["makespan"]) for p in points[:0:-1]), sep="\n")' "$room/json")
$(ends <<<"mark-0 schedules/v_min.lua
mark-1 schedules/zb_h1.lua")" "$(timelines "$room/b.html")"
expect "a line about a point, with the bubble of its script" "cap 3: makespan 86 units, optimal; bubble $(figure bubble "$room/points/cap_3.lua" | awk '{ printf "%.1f", 100 * $1 }') %" \
    "$(sed -nE 's/.* data-place="step-2" data-said="([^"]*)".*/\1/p' "$room/b.html")"
expect "zb_h1 has half as many stages" 1 "$(grep -c 'data-said="zb_h1: makespan 54 units, 8 live activations; bubble .*; a unit of its timeline is 2 units of the curve"' "$room/b.html")"
"$PIANOLA" frontier "${gpt[@]}" schedules/gpipe.lua --bytes --html "$room/bytes.html" >/dev/null
expect "over bytes: the first script's own order, the points, the other scripts" "$(ends < <(
    echo "mark-0 ${gpt[*]}"
    python3 -c '
import json, sys
for i, p in reversed(list(enumerate(json.load(open(sys.argv[1]))["points"]))):
    print("step-%d" % i, p["script"], *sys.argv[2:])' "$room/bytes.json" "${gpt[@]:1}"
    echo "mark-1 schedules/gpipe.lua ${gpt[*]:1}"))" "$(timelines "$room/bytes.html")"
expect "times of messages and updates are reported" "$(places "$room/bytes.html" | wc -w)" "$(grep -c 'data-said=.*; the timeline, which also has messages and updates, takes [0-9.]* GFLOP"' "$room/bytes.html")"

# The page says what it leaves out.
note() { sed -nE 's/.*id="note">([^<]*)<.*/\1/p' "$1"; }
expect "nothing is left out" " " "$(note "$room/b.html") $(note "$room/bytes.html")"
echo 'return cluster { memory = 6000000 }' >"$room/small.lua"
"$PIANOLA" frontier "${gpt[@]}" --cluster "$room/small.lua" --html "$room/small.html" >/dev/null
expect "points whose programs do not fit have no timeline" "step-1 step-0" "$(places "$room/small.html")"
expect "the page says why" 1 "$(note "$room/small.html" | grep -c "timelines of 2 points, because the best order there does not compile. cap 4: .*: rank 0 needs 6807552 bytes")"
mapfile -t many < <(yes schedules/gpipe.lua | head -n 40)
"$PIANOLA" frontier schedules/1f1b.lua "${many[@]}" -D workers=512 -D batches=2 --time 1 --html "$room/large.html" >/dev/null
expect "a page has at most 5 MB, and almost that" yes "$(stat -c %s "$room/large.html" | awk '{ print ($1 <= 5e6 && $1 > 4.5e6 ? "yes" : $1) }')"
kept=$(places "$room/large.html" | wc -w)
expect "the page says how many timelines it leaves out" "Left out: $((43 - kept)) of 43 timelines, to keep this page below 5 MB." "$(note "$room/large.html")"

# Errors
says() { expect "$1" "2 1" "$("$PIANOLA" frontier "${@:3}" >"$room/out" 2>"$room/stderr"; echo "$? $(grep -c -e "$2" "$room/stderr")")"; }
says "teams" "jobs that each run alone on one rank" schedules/tp.lua
says "an unknown parameter" "none of the scripts has this parameter" schedules/1f1b.lua schedules/gpipe.lua -D chunky=2
says "the picture over an input" "this file is an input" $caps --svg $caps
says "the picture to stdout" "name a file for the picture" $caps --svg -
says "the page to stdout" "name a file for the picture" $caps --html -
says "bytes without a model" "give --model" $caps --bytes
says "points into a file" "-o takes a folder" $caps -o "$room/a.svg"
says "points to stdout" "several files are written into a folder" $caps -o -
says "a picture into a missing folder" "No such file" $caps --svg "$room/none/a.svg"
says "backwards on other ranks" "with a cap, the best order is searched where both run on one rank" "$room/apart.lua"

# schedules/best-schedule.md shows what the commands print.
page=$(sed -n '/^## Memory against time/,/^## Limits/p' schedules/best-schedule.md)
expect "schedules/best-schedule.md" "$(sed -n '/^```$/,/^```$/{/^```$/d;p}' <<<"$page")" \
    "$(sed -nE 's/^    \$ build.pianola frontier (.*)/\1/p' <<<"$page" | while read -r shown; do eval "$PIANOLA frontier $shown"; done)"
expect "the table in schedules/best-schedule.md" "$(points $caps -D caps=1) | $(points $caps -D split=true) | $(points $caps "${v[@]}") | $(points $caps "${latency[@]}")" \
    "$(sed -nE '/^\| [at].* \|/{s/^\| [^|]*\|//;s/[ |]+/ /g;s/^ | $//g;s/none/-/;p}' <<<"$page" | paste -sd'|' | sed 's/|/ | /g')"
finish
