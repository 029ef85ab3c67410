#!/usr/bin/env bash
# Measures how well costs that `diff --fit` takes from a run predict it: all ranks as threads on this machine's cores.
# For each schedule, fits the even ones of a run's last steps, and compares the prediction with the odd ones: makespan,
# and each rank's work. With a core for each rank, predictions of schedules differ: then runs and fits pairs in turn, and
# counts those, of the pairs predicted to differ by 5 % or more, in which the faster prediction is the faster run.
# Usage: tests/bench/fit.sh, on a machine that does nothing else
cd "$(dirname "$0")/../.." || exit 2
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
export LC_ALL=C
schedules=(gpipe 1f1b interleaved breadth_first zb_h1 zb_h2 zbv v_half v_min dualpipev ddp fsdp)
model=(--model schedules/models/gpt.lua -D width=128)

figure() { sed -nE "s/^ *\"$1\": ([0-9.e+-]*),?$/\1/p" "$2" | head -1; }
measure() { # SCHEDULE FILE [OPTIONS]: trains, and writes the timeline of the last steps
    build/pianola run "schedules/$1.lua" "${model[@]}" "${@:3}" --data README.md --steps 40 --timeline "$2" >/dev/null 2>"$room/errors" ||
        { cat "$room/errors" >&2 && exit 1; }
}
# makespan SCHEDULE TIMELINE
makespan() {
    build/pianola show "schedules/$1.lua" "${model[@]}" --cluster "$room/$1.first.lua" --measured "$2" --json >"$room/shown" &&
        figure makespan "$room/shown"
}

# Fits a run, measures the program that the compiler makes with these costs, fits the even ones of its last steps, and
# leaves the odd ones. The compiler would make another program without a cluster: where buffers are reused, and so what
# waits, depends on predicted times.
fit() { # SCHEDULE
    measure "$1" "$room/$1.tsv"
    build/pianola diff "schedules/$1.lua" "$room/$1.tsv" "${model[@]}" --fit "$room/$1.first.lua" >/dev/null
    measure "$1" "$room/$1.tsv" --cluster "$room/$1.first.lua"
    for odd in 0 1; do
        awk -F'\t' -v odd=$odd 'NR == 1 || $1 % 2 == odd' "$room/$1.tsv" >"$room/$1.$odd.tsv"
    done
    build/pianola diff "schedules/$1.lua" --cluster "$room/$1.first.lua" "$room/$1.0.tsv" "${model[@]}" --fit "$room/$1.lua" >/dev/null
    [ -s "$room/$1.lua" ] && build/pianola show "schedules/$1.lua" "${model[@]}" --cluster "$room/$1.lua" --json >"$room/$1.json"
}

# Prints a line for each schedule.
fit_all() {
    local name
    for name in "${schedules[@]}"; do
        fit "$name" || exit 1
        build/pianola show "schedules/$name.lua" "${model[@]}" --cluster "$room/$name.lua" --format tsv >"$room/$name.predicted" || exit 1
        # the largest error of a rank's work: CPU seconds in the held-out steps against the prediction's
        awk -F'\t' -v what="$name" -v p="$(figure makespan "$room/$name.json")" -v m="$(makespan "$name" "$room/$name.1.tsv")" '
            FNR == NR { # an overlapped pair counts once
                if (FNR > 1 && $5 ~ /^[FBIWRU]$/ && !($1 " " $3 " " $4 in pair)) predicted[$1] += $4 - $3
                pair[$1 " " $3 " " $4]
                next
            }
            FNR > 1 && $6 ~ /^[FBIWRU]$/ { work[$2] += $12; steps[$1] }
            END {
                for (r in work) {
                    e = predicted[r] / (work[r] / length(steps)) - 1
                    worst = e < 0 ? (-e > worst ? -e : worst) : (e > worst ? e : worst)
                }
                printf "%6.1f %%  predicted %8.2f ms, held-out steps %8.2f ms; work of a rank within %.1f %%  %s\n", 100 * (p / m - 1),
                    1e3 * p, 1e3 * m, 100 * worst, what }' "$room/$name.predicted" "$room/$name.1.tsv"
    done
}
summary() { # RANKS
    awk -v ranks="$1" '{ e = $1 < 0 ? -$1 : $1; two += e <= 2; split($0, part, "within "); three += part[2] + 0 <= 3 } END {
        printf "costs fitted to a run of %s: makespan of held-out steps within 2 %% in %d of %d, the work of each rank within 3 %% in %d\n",
            ranks, two, NR, three }'
}
fit_all | tee "$room/own"
[ -s "$room/own" ] || exit 1
summary "4 to 8 ranks" <"$room/own"

# differ REPORT REPORT: prints two makespans, and 1 if the first is longer, else -1. Fails if they differ by less than 5 %
differ() {
    awk -v x="$(figure makespan "$1")" -v y="$(figure makespan "$2")" \
        'BEGIN { r = x / y; print 1e3 * x, 1e3 * y, (r > 1 ? 1 : -1); exit !(r > 1.05 || r < 1 / 1.05) }'
}

# Pairs take turns, and are fitted in the first, so that the machine is as fast for the fits as for the measurements.
model+=(-D workers=2 -D batches=4)
fit_all | tee "$room/own"
summary "2 ranks" <"$room/own"
right=0 pairs=0
for ((i = 0; i < ${#schedules[@]}; i++)); do
    for ((j = i + 1; j < ${#schedules[@]}; j++)); do
        a=${schedules[i]} b=${schedules[j]}
        differ "$room/$a.json" "$room/$b.json" >/dev/null && ((pairs < ${PAIRS:-40})) || continue
        : >"$room/a" && : >"$room/b"
        for turn in 1 2 3; do
            for side in a b; do
                name=${!side}
                if [ $turn = 1 ]; then fit "$name"; else measure "$name" "$room/$name.1.tsv" --cluster "$room/$name.first.lua"; fi
                makespan "$name" "$room/$name.1.tsv" >>"$room/$side"
            done
        done
        told=$(differ "$room/$a.json" "$room/$b.json") || continue
        read -r x y sign <<<"$told"
        was=$(sort -g "$room/a" | sed -n 2p) is=$(sort -g "$room/b" | sed -n 2p)
        pairs=$((pairs + 1))
        if awk -v a="$was" -v b="$is" -v s="$sign" 'BEGIN { exit !((a > b) == (s > 0)) }'; then
            right=$((right + 1))
        else
            echo "predicted otherwise than measured: $a $x ms, measured $was s; $b $y ms, measured $is s"
        fi
    done
done
echo "costs fitted to runs: of $pairs pairs of schedules predicted to differ by 5 % or more, on 2 ranks, $right differ that way when run in turn"
