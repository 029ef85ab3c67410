#!/usr/bin/env bash
# Compares predictions with measurements, and measurements with each other, through the real command. The measurements
# are simulations with costs that the diff does not know, with chosen steps, clocks and noise. So the right answers are
# known.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
G="--model schedules/models/gpt.lua"

# answers CODE ARGUMENTS...: expects diff's exit code; its output goes to $room/out
answers() {
    local code=$1 got
    shift
    timeout 60 "$PIANOLA" diff --all "$@" >"$room/out" 2>"$room/err"
    got=$?
    expect "diff $*: exit code ($(head -n 1 "$room/err"))" "$code" "$got"
}
row() { awk -v key="$1" -v nth="${2:-1}" '$1 == key && ++n == nth { $1 = ""; sub(/^ /, ""); print; exit }' "$room/out"; }

# measure TIMELINE STEPS NOISE SEED [CLOCKS [OP FACTOR [OWN]]]: prints STEPS measured steps. Each step is up to NOISE
# longer or shorter, and rank r's clock is ahead by the rth of CLOCKS. OP takes FACTOR times as long, and each operation
# up to OWN longer, without delaying others.
measure() {
    awk -F '\t' -v OFS='\t' -v steps="$2" -v noise="$3" -v seed="$4" -v clocks="${5:-}" -v op="${6:-}" -v factor="${7:-1}" -v own="${8:-0}" '
        NR == 1 { print "step", $0; next }
        { line[++n] = $0; if ($4 > last) last = $4 }
        $5 ~ /^SEND/ { sent[substr($5, 6) " " $6 " " $7 " " $1 " " $8] = $3 }
        END {
            split(clocks, ahead, ","); srand(seed); CONVFMT = OFMT = "%.15g"
            for (k = 1; k <= steps; k++) {
                stretch = 1 + noise * (2 * rand() - 1)
                for (i = 1; i <= n; i++) {
                    $0 = line[i]
                    # a RECV waits for its message from the moment it was sent
                    start = $5 ~ /^RECV/ ? sent[substr($5, 6) " " $6 " " $7 " " $8 " " $1] : $3
                    end = start + ($4 - start) * ($5 == op ? factor : 1) * (1 + own * rand())
                    $3 = 10 + 1.5 * k * last + ahead[$1 + 1] + start * stretch
                    $4 = 10 + 1.5 * k * last + ahead[$1 + 1] + end * stretch
                    $10 = "s"
                    print k + 1, $0
                }
            }
        }' "$1"
}
tsv() { timeout 60 "$PIANOLA" show "$@" --format tsv; }

# The costs that the diff must find: one speed, and links that all differ.
cat >"$room/hidden.lua" <<'L'
return cluster { flops = 2e9, link = function(src, dst) return 1e-4 * (1 + src), 1e8 * (2 + dst) end }
L
cat >"$room/wide.lua" <<'L'
return cluster { flops = 2e9, link = function(src, dst) return 0, 1e8 * (2 + dst) end }
L

# ---- a correct prediction, and one without costs ----

tsv schedules/1f1b.lua $G --cluster "$room/wide.lua" >"$room/wide.tsv"
measure "$room/wide.tsv" 8 0 1 >"$room/m.tsv"
answers 0 schedules/1f1b.lua $G --cluster "$room/wide.lua" "$room/m.tsv"
expect "a prediction that is right" "the same" "$(grep -x 'the same' "$room/out")"
expect "the note on the measurement" "B is measured: medians of 8 steps; no message contradicts the clocks" "$(grep '^B is' "$room/out" | head -n 1)"
answers 1 schedules/1f1b.lua $G "$room/m.tsv"
expect "the speed at which FLOP are converted to seconds" "2e+09" "$(sed -n 's/.*taken as seconds at \(.*\) a second.*/\1/p' "$room/out")"
answers 1 schedules/zb_h1.lua $G "$room/m.tsv" --fit "$room/fit.lua"
expect "the fitted speed if only one side splits backwards" "2e+09 2e+09" \
    "$(sed -n 's/.*taken as seconds at \(.*\) a second.*/\1/p' "$room/out") $(sed -n 's/^  flops = \(.*\),/\1/p' "$room/fit.lua")"
answers 1 schedules/zb_h1.lua $G --cluster "$room/wide.lua" "$room/m.tsv" --fit "$room/fit.lua"
expect "the fitted speed if the prediction is in seconds" \
    "2e+09" "$(sed -n 's/^  flops = \(.*\),/\1/p' "$room/fit.lua")"

# ---- fitted costs fed back ----

same_ends() { # TIMELINE TIMELINE TOLERANCE
    paste "$1" "$2" | awk -F '\t' -v most="$3" '
        NR > 1 && $4 > last { last = $4 }
        NR > 1 && ($4 - $14 > worst || $14 - $4 > worst) { worst = $4 > $14 ? $4 - $14 : $14 - $4; at = $0 }
        END { print worst <= most * last ? "same" : worst / last ": " at }'
}
# Prints schedule arguments: the fit predicts the hidden costs up to its six digits.
fed_back() { # NAME TOLERANCE ARGUMENTS...
    local name=$1 most=$2
    shift 2
    tsv "$@" $G --cluster "$room/hidden.lua" >"$room/h.tsv"
    measure "$room/h.tsv" 6 0 1 >"$room/m.tsv"
    answers 1 "$@" $G "$room/m.tsv" --fit "$room/fit.lua"
    tsv "$@" $G --cluster "$room/fit.lua" >"$room/f.tsv"
    expect "$name: fitted and hidden costs give the same end times" "same" "$(same_ends "$room/h.tsv" "$room/f.tsv" "$most")"
    answers 1 "$@" $G --cluster "$room/fit.lua" "$room/m.tsv" --json
    expect "$name: the fit predicts the measured makespan" "1" "$(awk -F '[ ,:]+' '$2 == "\"makespan\"" { x = $9 / $5; print (x * x < 1e-8 ? 1 : $0); exit }' "$room/out")"
}
fed_back 1f1b 1e-3 schedules/1f1b.lua
fed_back interleaved 2e-3 schedules/interleaved.lua
fed_back zb_h1 1e-3 schedules/zb_h1.lua
# Whole gradients: the number of pieces depends on the links, and other pieces make another program.
fed_back ddp 1e-3 schedules/ddp.lua -D bucket=1000000000000
sed 's/^return schedule {/&\n  bucket = math.huge,/' schedules/lpp.lua >"$room/lpp.lua"
fed_back lpp 3e-3 "$room/lpp.lua"

# Ranks that are threads on two cores. A message's CPU time is the receiver's; a collective's is divided among its
# members. Each operation of a collective has a line of its own.
cat >"$room/hidden.lua" <<'L'
local bandwidth = { ALL_GATHER = 3e8, REDUCE_SCATTER = 1e8, ALL_REDUCE = 2e8 }
return cluster {
  flops = 2e9, cores = 2, serial = true, handoff = 1e-4, link = function() return 1e-4, 5e8 end,
  collective = function(op, n) if bandwidth[op] then return 1e-5, bandwidth[op] * n end end,
}
L
threads() { # TIMELINE: adds CPU times
    awk -F '\t' -v OFS='\t' '
        NR == 1 { print $0, "cpu", "cores", "handoff"; next }
        FNR == NR { if ($3 ~ /,/) { members[$3] = gsub(/,/, ",", $3) + 1 } }
        FNR != NR && FNR > 1 { print $0, $6 ~ /^SEND/ ? 0 : ($5 - $4) / ($3 ~ /,/ ? gsub(/,/, ",", $3) + 1 : 1), 2, 1e-4 }
    ' CONVFMT=%.15g OFMT=%.15g "$1" "$1"
}
# Turns follow ties, which six digits may break otherwise. So durations are compared, not ends.
for schedule in 1f1b zbv ddp fsdp zero1; do
    tsv schedules/$schedule.lua $G --cluster "$room/hidden.lua" >"$room/h.tsv"
    measure "$room/h.tsv" 6 0 1 >"$room/m.tsv"
    threads "$room/m.tsv" >"$room/t.tsv"
    timeout 60 "$PIANOLA" diff schedules/$schedule.lua $G "$room/t.tsv" --fit "$room/fit.lua" >"$room/out"
    tsv schedules/$schedule.lua $G --cluster "$room/fit.lua" >"$room/f.tsv"
    expect "$schedule: costs fitted to threads give the same durations" "same" "$(paste "$room/h.tsv" "$room/f.tsv" | awk -F '\t' '
        NR > 1 { d = ($4 - $3) - ($14 - $13); if (d * d > 1e-8 * ($4 - $3) ^ 2 || $5 != $15) { wrong++; at = $0 } }
        END { print wrong ? wrong " of " NR - 1 ", such as " at : "same" }')"
done

# Unmeasured stages are costed by FLOP; costs for other stages are refused.
tsv schedules/1f1b.lua $G --cluster "$room/wide.lua" >"$room/h.tsv"
measure "$room/h.tsv" 6 0 1 >"$room/m.tsv"
answers 1 schedules/1f1b.lua $G "$room/m.tsv" --fit "$room/fit.lua"
tsv schedules/zb_h1.lua $G --cluster "$room/wide.lua" | awk '$5 == "I"' | sort >"$room/a"
tsv schedules/zb_h1.lua $G --cluster "$room/fit.lua" | awk '$5 == "I"' | sort >"$room/b"
expect "I, estimated from its FLOP and the times of F and B" "32 same" "$(paste "$room/a" "$room/b" | awk '{ x = ($4 - $3) / ($(NF / 2 + 4) - $(NF / 2 + 3)) - 1
    if (x * x < 1e-8) n++ } END { print n, n == NR ? "same" : "of " NR }')"
sed -i '/flops/d' "$room/fit.lua"
expect "a cluster without flops" 'pianola: error: the cluster'"'"'s cost(0, "I") is nil, and it has no flops to derive it from; `diff --fit` gives flops if one side is predicted from a model' \
    "$("$PIANOLA" check schedules/zb_h1.lua $G --cluster "$room/fit.lua" 2>&1)"
expect "costs of other stages" "stages' is 4: these costs are for 4 stages, but the schedule has 8; measure such a schedule, or leave 'cost' out" \
    "$("$PIANOLA" check schedules/1f1b.lua $G -D workers=8 --cluster "$room/fit.lua" 2>&1 | sed -n "s/.*error: '//p")"
answers 2 schedules/1f1b.lua schedules/gpipe.lua --fit "$room/none.lua"
expect "neither side is measured" "pianola: error: --fit: neither schedules/1f1b.lua nor schedules/gpipe.lua is measured; \`pianola run --timeline FILE\` measures" \
    "$(cat "$room/err")"
expect "and nothing is written" "" "$(ls "$room/none.lua" 2>/dev/null)"

# A message in one direction only, which seems to arrive before it is sent: the clock error is then unknown.
{
    echo $'step\trank\tlane\tstart\tend\top\tstage\tbatch\tpeer\tbytes'
    printf '%s\t%s\t%s\t%s\n' 3 0 compute $'20\t21\tF\t0\t0\t\t' 3 0 'send 1' $'21\t22\tSEND_F\t0\t0\t1\t4' \
        3 1 compute $'18\t19\tF\t1\t0\t\t' 3 1 'recv 0' $'16\t17\tRECV_F\t0\t0\t0\t4'
} >"$room/oneway.tsv"
answers 0 "$room/oneway.tsv" "$room/oneway.tsv" --json
expect "clocks without a bound on their error" '"clocks": [-4, 0], "clock_error": null' "$(grep -o '"clocks.*[^ },]' "$room/out" | head -n 1)"

# ---- two measurements: chance and real differences ----

measure "$room/h.tsv" 8 0.03 1 >"$room/a.tsv"
measure "$room/h.tsv" 8 0.03 2 >"$room/b.tsv"
answers 0 "$room/a.tsv" "$room/b.tsv"
expect "noise is no change" "~ =" "$(row makespan | awk '{ print $NF }') $(row bubble | awk '{ print $NF }')"
answers 0 "$room/a.tsv" "$room/b.tsv" --fail-on makespan:+0,bubble:+0
answers 0 "$room/b.tsv" "$room/a.tsv" --fail-on makespan:+0,bubble:+0 # one of the two runs is longer
answers 0 "$room/a.tsv" "$room/b.tsv" --json
expect "noise has a p-value above 0.05" \
    1 "$(awk -F '[ ,:]+' '$2 == "\"makespan_p\"" { print ($3 > 0.05) }' "$room/out")"
measure "$room/h.tsv" 8 0.03 1 "" "" 1 0.2 >"$room/a.tsv"
measure "$room/h.tsv" 8 0.03 2 "" "" 1 0.2 >"$room/b.tsv"
answers 0 "$room/a.tsv" "$room/b.tsv" # with separate tests, 8 of 164 operations would seem to differ
measure "$room/h.tsv" 8 0.03 1 >"$room/a.tsv"
measure "$room/h.tsv" 8 0.03 2 "" RECV_F 1.2 >"$room/b.tsv" # messages take a fifth longer, in 3 % noise
answers 1 "$room/a.tsv" "$room/b.tsv"
expect "the real differences" "24 longer" "$(sed -nE 's/^([0-9]+ longer) or shorter.*/\1/p' "$room/out" | head -n 1)"
expect "the makespan's difference is chance" "~" "$(row makespan | awk '{ print $NF }')"
expect "the ratio for RECV_F" 1 "$(row RECV_F | awk '{ print ($3 > 1.15 && $3 < 1.25) }')"
expect "changed links: only those for forwards" "0 to 1,1 to 2,2 to 3" "$(sed -nE 's/^([0-9] to [0-9]).*/\1/p' "$room/out" | sort | paste -sd,)"
measure "$room/h.tsv" 8 0.03 2 | awk -F '\t' -v OFS='\t' -v CONVFMT=%.15g 'NR > 1 { $4 *= 1.1; $5 *= 1.1 } { print }' >"$room/slow.tsv"
answers 1 "$room/a.tsv" "$room/slow.tsv" --fail-on makespan:+5%
answers 0 "$room/a.tsv" "$room/slow.tsv" --fail-on makespan:+15%
measure "$room/h.tsv" 3 0.03 2 >"$room/b.tsv"
answers 0 "$room/a.tsv" "$room/b.tsv" # 8 and 3 steps suffice for a test, 3 and 3 do not
measure "$room/h.tsv" 3 0.03 1 >"$room/a.tsv"
answers 1 "$room/a.tsv" "$room/b.tsv"
expect "too few steps" 1 "$(grep -c '^too few steps to tell a change from chance' "$room/out")"

# ---- clocks ----

measure "$room/h.tsv" 6 0.01 3 >"$room/a.tsv"
measure "$room/h.tsv" 6 0.01 3 0,3,-2,0.5 >"$room/b.tsv"
answers 0 "$room/a.tsv" "$room/b.tsv" --json
expect "clocks that are seconds apart, aligned within the reported error" "4 right" "$(awk -F '[][,]' -v OFS= '
    BEGIN { split("0,-3,2,-0.5", want, ",") }
    /"b":.*"clocks"/ { split($0, part, /"clock_error": /); error = part[2] + 0
        for (i = 1; i <= 4; i++) { off = $(i + 2) - want[i]; if (off * off <= error * error + 1e-12) n++ } }
    END { print n, " right" }' "$room/out")"

# ---- a folder with one file per rank ----

mkdir "$room/ranks"
for r in 0 1 2 3; do
    awk -F '\t' -v r=$r 'NR == 1 || $2 == r' "$room/b.tsv" >"$room/ranks/timeline.$r.tsv"
done
answers 0 "$room/ranks" "$room/b.tsv"
expect "the ranks' own files equal the whole timeline" "the same" "$(grep -x 'the same' "$room/out")"
mv "$room/ranks/timeline.3.tsv" "$room/kept.tsv"
answers 2 "$room/ranks" "$room/b.tsv"
expect "the last rank is missing" "pianola: error: $room/ranks/timeline.3.tsv is missing: rank 2 has messages with rank 3" "$(cat "$room/err")"
mv "$room/kept.tsv" "$room/ranks/timeline.3.tsv"
mv "$room/ranks/timeline.1.tsv" "$room/kept.tsv"
answers 2 "$room/ranks" "$room/b.tsv"
expect "a rank in between is missing" "pianola: error: $room/ranks/timeline.1.tsv is missing: rank 0 has messages with rank 1" "$(cat "$room/err")"
mv "$room/kept.tsv" "$room/ranks/timeline.1.tsv"
head -n 1 "$room/b.tsv" >"$room/head.tsv"
answers 2 "$room/b.tsv" "$room/head.tsv"
expect "only a header" "$room/head.tsv:2: error: expected rows: a timeline without rows was cut off" "$(cat "$room/err")"
sed -i '/^7\t/d' "$room/ranks/timeline.2.tsv"
answers 2 "$room/ranks" "$room/b.tsv"
expect "a rank with other steps" "pianola: error: $room/ranks/timeline.2.tsv has different steps than $room/ranks/timeline.0.tsv: they are not from the same run" "$(cat "$room/err")"
cp "$room/ranks/timeline.1.tsv" "$room/ranks/timeline.2.tsv"
answers 2 "$room/ranks" "$room/b.tsv"
expect "a file with another rank's rows" "pianola: error: $room/ranks/timeline.2.tsv: it has rows of rank 1; it should be rank 2's own" "$(cat "$room/err")"

# ---- a real training: the same instructions on the same lanes as predicted ----

rows() { cut -f 1,2,5-9 | tail -n +2 | sort; }
for schedule in schedules/*.lua; do
    "$PIANOLA" run "$schedule" --model schedules/models/integers.lua --steps 2 --json --timeline "$room/timeline" >/dev/null 2>&1
    expect "$schedule: rows of a measured timeline" "" \
        "$(diff <("$PIANOLA" show "$schedule" --model schedules/models/integers.lua --format tsv | rows) <(cut -f 2- "$room/timeline" | rows) | head -n 5)"
done
finish
