# For tests of measured timelines: . tests/support/timelines.sh, after tests/support/lib.sh.

# check_timeline WHAT PROGRAM STEPS APART FILE...: checks that each step has the rows of PROGRAM, a predicted timeline,
# and that the steps are numbered STEPS. On a rank, a lane runs one instruction at a time, steps follow each other, and
# a job begins after its inputs arrived. Between ranks, a RECV begins before its SEND ends, and ends after its SEND
# begins. The ranks' clocks may differ by APART seconds. A job's CPU time, if known, is no more than its duration.
check_timeline() {
    expect "$1: rows and steps" "" "$(tail -qn +2 "${@:5}" | awk -F '\t' -v OFS='\t' -v steps="$3" '
        NR == FNR { if (FNR > 1) { $3 = $4 = ""; $10 = "s"; wanted[$0]; n++ } next }
        $6 ~ /^([FBIWRU]|ADD)$/ && $12 != "" && !($12 >= 0 && $12 <= $5 - $4 + 1e-4) { print "CPU time " $12 ": " $0 }
        { step = $1; $4 = $5 = ""; NF = 11; sub(/^[^\t]*\t/, "") }
        !(step in rows) { order = order (order == "" ? "" : " ") step }
        !($0 in wanted) { print "no such row: " $0 }
        seen[step, $0]++ { print "twice in step " step ": " $0 }
        { rows[step]++ }
        END {
            m = split(order, f, " ")
            for (k = 1; k <= m; k++) if (rows[f[k]] != n) print "step " f[k] " has " rows[f[k]] " rows, not " n
            if (order != steps) print "steps " order " instead of " steps
        }' "$2" - | head -n 5)"
    expect "$1: headers" "step rank lane start end op stage batch peer bytes unit cpu cores handoff" "$(head -qn 1 "${@:5}" | sort -u | tr '\t' ' ')"
    expect "$1: times" "" "$(tail -qn +2 "${@:5}" | awk -F '\t' -v apart="$4" '
        !(($2, $1) in first) { first[$2, $1] = $4 }
        $4 > $5 || $4 < last[$2, $3] { print $0 ": begins too early" }
        { if ($5 > ended[$2, $1]) ended[$2, $1] = $5; last[$2, $3] = $5; time = $4 " " $5 }
        ended[$2, $1 - 1] > $4 { print $0 ": the step before has not ended" }
        $6 ~ /^SEND_[FB]$/ { key = $1 " " $6 " " $7 " " $8 " " $2 " " $9; sub("SEND", "RECV", key); sent[key] = time }
        $6 ~ /^RECV_[FB]$/ { received[$1 " " $6 " " $7 " " $8 " " $9 " " $2] = time; came[$1, $6, $7, $8, $2] = $5 }
        $6 == "F" || $6 == "B" { start[$1, $6, $7, $8, $2] = $4 }
        END {
            for (k in first) if (!(ended[k] > first[k])) { split(k, f, SUBSEP); print "step " f[2] " of rank " f[1] " takes no time" }
            for (k in received) { n++; split(sent[k], f, " "); split(received[k], g, " ")
                if (!(f[1] <= g[2] + apart && g[1] <= f[2] + apart)) print k ": " sent[k] " and " received[k] }
            for (k in came) { split(k, f, SUBSEP); s = f[2] == "RECV_F" ? f[3] + 1 : f[3] - 1
                if (start[f[1], substr(f[2], 6), s, f[4], f[5]] < came[k]) print f[2] " " f[3] " " f[4] " came late" }
            if (n == 0) print "no message"
        }' | head -n 5)"
}
