#!/usr/bin/env bash
# Checks `pianola show --measured`: it shows measurements like predictions, in every format, and refuses measurements of
# another program. The steps are made from predictions, so their figures are known.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT

# steps STRETCH... <timeline.tsv: prints steps 5, 6, … of a run in a row, 0.5 ms apart; a unit lasts STRETCH ms.
steps() {
    awk -F '\t' -v OFS='\t' -v CONVFMT=%.9g -v stretch="$*" '
        NR == 1 { print "step", $0; next }
        { row[++n] = $0 }
        END {
            m = split(stretch, by, " ")
            for (k = 1; k <= m; k++) {
                for (i = 1; i <= n; i++) {
                    $0 = row[i]
                    $3 = at + by[k] * $3 / 1000; $4 = at + by[k] * $4 / 1000; $10 = "s"
                    last = $4 > last ? $4 : last
                    print 4 + k, $0
                }
                at = last + 0.0005
            }
        }'
}
show() { "$PIANOLA" show "$@" 2>&1; }

# In seconds, a unit being 2 ms, the median of 2, 1 and 3. The drawing equals the predicted one except for the unit.
for args in "schedules/1f1b.lua" "schedules/dualpipev.lua" "schedules/zbv.lua --lanes rank" "schedules/lpp.lua"; do
    show $args --format tsv >"$room/predicted.tsv"
    steps 2 1 3 <"$room/predicted.tsv" >"$room/measured.tsv"
    m="--measured $room/measured.tsv"
    expect "$args: the median step" "" "$(paste "$room/predicted.tsv" <(show $args $m --format tsv) | awk -F '\t' '
        NR > 1 { for (i = 3; i <= 4; i++) if (($i * 0.002 - $(i + 10)) ^ 2 > 1e-16) { print; exit } }
        { for (i = 1; i <= 9; i++) if ((NR == 1 || i < 3 || i > 4) && $i != $(i + 10)) { print; exit } }')"
    [ "$args" = schedules/dualpipev.lua ] || # pairs overlap in the prediction, and are two jobs here
        for figure in busy idle span makespan bound_work bound_path; do
            expect "$args: $figure" "" "$(paste <(show $args --json) <(show $args $m --json | grep -v measured_steps) | tr -d ',' |
                awk -v k="\"$figure\":" '$1 == k && ($2 * 0.002 - $4) ^ 2 > 1e-16')"
        done
    expect "$args: its jobs, peaks and memory" "" "$(diff <(show $args --json | grep -E '"(peak|act|bytes|held|at)' | grep -v exposed) \
        <(show $args $m --json | grep -E '"(peak|act|bytes|held|at)' | grep -v exposed))"
    expect "$args: unit and steps" '"unit": "s", "measured_steps": 3,' "$(show $args $m --json | grep -E 'unit|steps"' | xargs -d '\n' | tr -s ' ' | sed 's/^ //')"
    expect "$args: the grid" "$(show $args --ascii | grep ^rank | head -n 4)" "$(show $args $m --ascii | grep ^rank | head -n 4)"
done
expect "the report says that it shows measurements" \
    "1f1b: 4 workers, 4 stages, 8 microbatches; measured, the median of 3 steps" \
    "$(show schedules/1f1b.lua --format tsv | steps 1 2 3 >"$room/m.tsv"; show schedules/1f1b.lua --measured "$room/m.tsv" | grep '^1f1b')"
expect "the picture says that it shows measurements" "makespan 66 ms measured; bubble 27.3 %" \
    "$(show schedules/1f1b.lua --measured "$room/m.tsv" --format svg | grep -o 'makespan.*%')"
expect "the critical path covers the whole step" \
    "$(show schedules/1f1b.lua --with path --ascii | grep -A1 '^rank [0-9]')" \
    "$(show schedules/1f1b.lua --measured "$room/m.tsv" --with path --ascii | grep -A1 '^rank [0-9]')"
# The critical path continues across a gap between an instruction and the end of what it waited for.
awk -F '\t' -v OFS='\t' -v CONVFMT=%.9g 'NR > 1 { $5 -= 0.0002 } NR > 1 && $5 < $4 { $5 = $4 } { print }' "$room/m.tsv" >"$room/gaps.tsv"
expect "the critical path across gaps" "$(show schedules/1f1b.lua --with path --format svg | grep -c 'class="o c"')" \
    "$(show schedules/1f1b.lua --measured "$room/gaps.tsv" --with path --format svg | grep -c 'class="o c"')"

# A measured pair is two jobs, and the links' speeds were not measured: the bounds come from jobs alone.
bounds() { sed -nE 's/^ +"(busy|bound_path)": ([^,]*),/\2/p' | head -n "$1" | tail -n 1 | awk '{ printf "%.6f\n", $1 }'; }
show schedules/dualpipev.lua --format tsv | steps 2 2 2 >"$room/pairs.tsv"
expect "a rank's busy time, including pairs" "$(awk -F '\t' '$1 == 5 && $2 == 0 && $6 ~ /^[FRIBW]$/ { sum += $5 - $4 } END { printf "%.6f\n", sum }' "$room/pairs.tsv")" \
    "$(show schedules/dualpipev.lua --measured "$room/pairs.tsv" --json | bounds 2)"
latency="--cluster schedules/clusters/latency.lua -D latency=0.25"

# Traces contain every step.
chrome() { show schedules/1f1b.lua "$@" --format chrome | grep '"ph":"X"' | sed -E 's/.*"ts":([0-9.]*),"dur":([0-9.]*),"name":"([^"]*)".*"step":([0-9]*).*/\4 \3 \1 \2/'; }
expect "a job of each step" "5 3B7 25000.000 2000.000|6 3B7 83500.000 4000.000|7 3B7 175000.000 6000.000" \
    "$(chrome --measured "$room/m.tsv" | grep 3B7 | paste -sd'|')"
expect "no other jobs" $(($(show schedules/1f1b.lua --format tsv | wc -l) * 3 - 3)) "$(chrome --measured "$room/m.tsv" | wc -l)"

show schedules/1f1b.lua $latency --format tsv | steps 2 2 2 >"$room/m.tsv"
expect "the longest path, without links" "0.024000" "$(show schedules/1f1b.lua $latency --measured "$room/m.tsv" --json | bounds 1)"

# Holistic Trace Analysis gets the measured wait of a receive for its send, not the median step's. In other traces the
# receive begins with its send, because a viewer's arrows cannot go back in time.
show schedules/1f1b.lua $latency --format tsv | steps 1 1 1 |
    awk -F '\t' -v OFS='\t' -v CONVFMT=%.9g '$6 ~ /RECV/ { $4 -= 0.0005 } { print }' >"$room/early.tsv"
expect "an early receive in the median step" "1 1.25" "$(show schedules/1f1b.lua $latency --measured "$room/early.tsv" --format tsv |
    awk '$6 == "RECV_F" { printf "%.9g %.9g\n", 1000 * $4, 1000 * $5; exit }')"
expect "an early receive in a trace" "5 0RECV_F0 1000.000 250.000" "$(chrome $latency --measured "$room/early.tsv" | grep -m 1 0RECV_F0)"
show schedules/1f1b.lua $latency --measured "$room/early.tsv" --format hta -o "$room/hta"
expect "an early receive for Holistic Trace Analysis" '"ts":750,"dur":500,"name":"ncclKernel_RECV_F"' \
    "$(grep -om 1 '"ts":[0-9]*,"dur":[0-9]*,"name":"ncclKernel_RECV_F"' "$room/hta/rank1.json")"

# A folder of ranks, each with its own clock: rank 1's is 10 ms ahead, rank 2's behind. Links take a quarter unit.
show schedules/1f1b.lua $latency --format tsv | steps 2 1 3 >"$room/m.tsv"
mkdir "$room/ranks"
for r in 0 1 2 3; do
    awk -F '\t' -v OFS='\t' -v CONVFMT=%.9g -v r=$r '{ d = r == 1 ? 1.01 : r == 2 ? 0.99 : 1 } NR == 1 || $2 == r { if (NR > 1) { $4 += d; $5 += d } print }' \
        "$room/m.tsv" >"$room/ranks/timeline.$r.tsv"
done
expect "ranks with their own clocks" "$(show schedules/1f1b.lua $latency --measured "$room/m.tsv" | sed -n '/^makespan/p;/^rank  busy/,/^$/p')" \
    "$(show schedules/1f1b.lua $latency --measured "$room/ranks" | sed -n '/^makespan/p;/^rank  busy/,/^$/p')"

# Holistic Trace Analysis gets one file per rank; all are written, or none.
show schedules/1f1b.lua $latency --measured "$room/m.tsv" --format hta -o "$room/hta" >"$room/out"
expect "a file for each rank" "0 rank0.json rank1.json rank2.json rank3.json " "$? $(ls "$room/hta" | tr '\n' ' ')"
expect "the steps in these files" \
    "5 6 7" "$(grep -oh 'ProfilerStep#[0-9]*' "$room/hta/rank2.json" | cut -d'#' -f2 | paste -sd' ')"
expect "the ranks in these files" "0 1 2 3" "$(grep -oh '"rank": [0-9]*' "$room"/hta/* | cut -d' ' -f2 | paste -sd' ')"

# Refused: measurements of another program, and timelines that are not measurements.
refused() { # MESSAGE ARGS...
    local got
    got=$("$PIANOLA" show "${@:2}" 2>&1 >"$room/out")
    expect "show ${*:2}: exit code" 2 $?
    expect "show ${*:2}" "pianola: error: $1" "$(head -n 1 <<<"$got")"
    expect "show ${*:2}: stdout" "" "$(cat "$room/out")"
}
as="give the -D, --model, --cluster and --lanes that it was measured with"
M=$room/m.tsv
refused "$M: 164 rows, but the program has 10 instructions; $as: --model is missing, and every run has one" schedules/1f1b.lua -D batches=1 -D workers=2 --measured "$M"
refused "$M, rank 0's B in lane compute: this row is not an instruction of the program, which has 0F4 on rank 0 there; $as: --model is missing, and every run has one" \
    schedules/gpipe.lua --measured "$M"
refused "$M, rank 0's SEND_F in lane send 1: this row is not an instruction of the program, which has SEND_F 0 0 to 1 of 65536 bytes on rank 0 there; $as: --cluster is missing, and the order of the jobs depends on its times" \
    schedules/1f1b.lua --model schedules/models/gpt.lua --measured "$M"
refused "$M, rank 0's SEND_F in lane send 1: this row is not an instruction of the program, which has SEND_F 0 0 to 1 of 65536 bytes on rank 0 there; $as" \
    schedules/1f1b.lua --model schedules/models/gpt.lua --cluster schedules/clusters/nodes.lua --measured "$M"
A=generated/1f1b/timeline.tsv
refused "$A: has no column \`step\`, so it is not a measured timeline; \`pianola run --timeline FILE\` writes one" \
    schedules/1f1b.lua --measured $A
refused "$room/none: No such file or directory" schedules/1f1b.lua --measured "$room/none"
refused "--measured: --format streams has no times" schedules/1f1b.lua --measured "$M" --format streams
refused "--measured: --format torch-csv has no times" schedules/1f1b.lua --measured "$M" --format torch-csv
refused "--format hta writes a file for each rank: give their folder with -o DIR" schedules/1f1b.lua --format hta
refused "$M: this is not a folder, but several files are written: -o takes a folder, existing or new" schedules/1f1b.lua --format hta -o "$M"
finish
