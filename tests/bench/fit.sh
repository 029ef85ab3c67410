#!/usr/bin/env bash
# Measures how well costs that `diff --fit` takes from a run predict it: all ranks as threads on this machine's cores.
# For each schedule, fits the even ones of a run's last steps, and compares the prediction with the odd ones: makespan,
# and each rank's work. With a core for each rank, predictions of schedules differ: then runs pairs whose predictions
# differ by 5 % or more in turn, and counts those in which the faster prediction is the faster run.
# Usage: tests/bench/fit.sh, on a machine that does nothing else
cd "$(dirname "$0")/../.." || exit 2
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
export LC_ALL=C
schedules=(gpipe 1f1b interleaved breadth_first zb_h1 zb_h2 zbv v_half v_min dualpipev ddp fsdp)
model=(--model schedules/models/gpt.lua -D width=128)

figure() { sed -nE "s/^ *\"$1\": ([0-9.e+-]*),?$/\1/p" "$2" | head -1; }
measure() { # SCHEDULE FILE: trains, and writes the timeline of the last steps
    build/pianola run "schedules/$1.lua" "${model[@]}" --data README.md --steps 40 --timeline "$2" >/dev/null 2>"$room/errors" ||
        { cat "$room/errors" >&2 && exit 1; }
}
# makespan SCHEDULE TIMELINE
makespan() {
    build/pianola show "schedules/$1.lua" "${model[@]}" --measured "$2" --json >"$room/shown" && figure makespan "$room/shown"
}

# Measures and fits all schedules, and prints a line for each.
fit_all() {
    local name odd
    for name in "${schedules[@]}"; do
        measure "$name" "$room/$name.tsv"
        for odd in 0 1; do
            awk -F'\t' -v odd=$odd 'NR == 1 || $1 % 2 == odd' "$room/$name.tsv" >"$room/$name.$odd.tsv"
        done
        build/pianola diff "schedules/$name.lua" "$room/$name.0.tsv" "${model[@]}" --fit "$room/$name.lua" >/dev/null
        [ -s "$room/$name.lua" ] || exit 1
        build/pianola show "schedules/$name.lua" "${model[@]}" --cluster "$room/$name.lua" --json >"$room/$name.json" || exit 1
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
fit_all | tee "$room/own"
[ -s "$room/own" ] || exit 1
awk '{ e = $1 < 0 ? -$1 : $1; two += e <= 2; split($0, part, "within "); three += part[2] + 0 <= 3 } END {
    printf "costs fitted to a run: makespan of held-out steps within 2 %% in %d of %d, the work of each rank within 3 %% in %d\n",
        two, NR, three }' "$room/own"

model+=(-D workers=2 -D batches=4)
fit_all >/dev/null
right=0 pairs=0
for ((i = 0; i < ${#schedules[@]}; i++)); do
    for ((j = i + 1; j < ${#schedules[@]}; j++)); do
        a=${schedules[i]} b=${schedules[j]}
        sign=$(awk -v x="$(figure makespan "$room/$a.json")" -v y="$(figure makespan "$room/$b.json")" \
            'BEGIN { r = x / y; print (r > 1.05 ? 1 : r < 1 / 1.05 ? -1 : 0) }')
        ((sign != 0 && pairs < ${PAIRS:-40})) || continue
        : >"$room/a" && : >"$room/b"
        for turn in 1 2 3; do
            for side in a b; do
                measure "${!side}" "$room/turn.tsv"
                makespan "${!side}" "$room/turn.tsv" >>"$room/$side"
            done
        done
        x=$(sort -g "$room/a" | sed -n 2p) y=$(sort -g "$room/b" | sed -n 2p)
        pairs=$((pairs + 1))
        if awk -v x="$x" -v y="$y" -v s="$sign" 'BEGIN { exit !((x > y) == (s > 0)) }'; then
            right=$((right + 1))
        else
            echo "predicted otherwise than measured: $a $x s, $b $y s"
        fi
    done
done
echo "costs fitted to runs: of $pairs pairs of schedules predicted to differ by 5 % or more, on 2 ranks, $right differ that way when run in turn"
