#!/usr/bin/env bash
# Checks the traffic of teams, hidden and exposed, against the table of Qi 2025, "Synergistic Tensor and Pipeline
# Parallelism" (STP), and of its README, through the real command. P teams of t ranks run M microbatches in two chunks
# each. A chunk computes for F, I and W. In each direction its team exchanges for AR, in k all-reduces, each no longer
# than the weight gradient of one layer. Where our figures differ, schedules/teams.md says why.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh

# measured SCHEDULE: prints for each team exposed, hidden, bubble (makespan - busy - exposed), span - busy - exposed,
# peak.
measured() { # SCHEDULE
    json "schedules/$1.lua" -D workers="$P" -D batches="$M" -D stages=$((2 * P)) -D blocks="$k" -D tensor="$t" -D F="$F.0" \
        -D I="$I.0" -D W="$W.0" -D AR="$AR.0" --model tests/papers/stp/chunks.lua --cluster tests/papers/stp/teams.lua |
        awk -F'[:,] *' -v t="$t" '
            function of_teams() { match($0, /"teams": [-0-9.e+]*/); return substr($0, RSTART + 9, RLENGTH - 9) }
            /error:/ { print }
            /^  "makespan"/ { makespan = $2 }
            /"rank"/ { rank = $2 }
            /"busy"/ { busy = $2 }
            /"span"/ { span = $2 }
            /"peak_activations"/ { peak = $2 }
            /"exposed"/ { exposed = of_teams() }
            /"hidden"/ {
                line = sprintf("%.2f %.2f %.2f %.2f %d", exposed, of_teams(), makespan - busy - exposed,
                    span - busy - exposed, peak)
                gsub(/-0\.00/, "0.00", line)
                if (rank % t == 0) print first = line
                else if (line != first) print "member " rank ": " line
            }'
}

# wanted SCHEDULE: prints the same figures by formulas, or - if no formula holds.
wanted() { # SCHEDULE
    awk -v schedule="$1" -v P="$P" -v M="$M" -v k="$k" -v F="$F" -v I="$I" -v W="$W" -v AR="$AR" '
        function places(x) { return x == "-" ? x : sprintf("%.2f", x) }
        BEGIN {
            for (r = 0; r < P; r++) {
                exposed = 4 * M * AR
                elsewhere = 0 # jobs that run while the team waits for another exchange
                bubble = span = peak = "-"
                if (schedule == "interleaved") {
                    exposed = 2 * M * AR
                    bubble = (P - 1) * (F + AR + I + W)
                    if (M % P == 0) peak = P + 2 * (P - 1 - r) + 1
                }
                if (schedule == "zbv") {
                    if (F == I && I == W) span = (P - 1 - r) * (F + 2 * AR + I - 2 * W)
                    peak = 2 * P
                }
                if (schedule == "stp") {
                    early = P - 1 - r < M - 2 * P ? P - 1 - r : M - 2 * P
                    apart = 2 * (M - 2 * P - early) + 1
                    if (apart > r) apart = r
                    no_weights = int((r + 1) / 2) + (P - 1 - r) + apart + P - 1 + early # pairs F+F, F+I
                    exposed = (2 * P + (r + 1) % 2) * AR + no_weights * AR / k
                    if (k > 1 && r < P - 1 && M > 2 * P + early) elsewhere = AR / k
                    if (r == P - 1 && F <= W) bubble = (P - 1) * (F + AR + (I > W ? I - W : 0)) # not shorter than the fill
                    peak = 3 * P + (r > 1 ? r : 1)
                }
                print places(exposed), places(4 * M * AR - exposed - elsewhere), places(bubble), places(span), peak
            }
        }'
}

# matches WHAT WANTED GOT: compares all figures that WANTED has.
matches() {
    expect "$1" "$2" "$(paste -d' ' <(echo "$2") <(echo "$3") |
        awk '{ for (i = 1; i <= 5; i++) printf "%s%s", $i == "-" ? "-" : $(i + 5), i < 5 ? " " : "\n" }')"
}

for size in 2/8/2 3/9/4 4/12/2 5/14/3; do
    IFS=/ read -r P M t <<<"$size"
    for k in 1 2 4; do
        for costs in 8/8/8/0 8/8/8/1 9/8/7/1 8/9/8/1 8/9/10/2; do
            IFS=/ read -r F I W AR <<<"$costs"
            for schedule in interleaved zbv stp; do
                matches "$schedule, P = $P, M = $M, t = $t, k = $k; F, I, W, AR = $F, $I, $W, $AR" "$(wanted $schedule)" \
                    "$(measured $schedule)"
            done
        done
    done
done
finish
