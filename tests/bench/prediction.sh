#!/usr/bin/env bash
# Compares the makespan that `run` predicts, from the CPU time of each job, with the one it measures: 20 schedules, each
# with two models, all ranks as threads on this machine's cores. Prints a line for each, then the median and the worst.
# Usage: tests/bench/prediction.sh, on a machine that does nothing else
cd "$(dirname "$0")/../.." || exit 2
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
export LC_ALL=C
schedules=(gpipe 1f1b interleaved breadth_first lpp fslpp zb_h1 zb_h2 zbv v_half v_min dualpipe dualpipev chimera hanayo 2bp
    ddp fsdp 1f1b_fsdp tp_1f1b)

figure() { sed -nE "s/^ *\"$1\": ([0-9.e+-]*),?$/\1/p" "$room/run"; }
# compare MODEL FLAGS...
compare() {
    local schedule
    for schedule in "${schedules[@]}"; do
        build/pianola run "schedules/$schedule.lua" --model "schedules/models/$1.lua" "${@:2}" --data README.md --steps 20 \
            --json >"$room/run" 2>"$room/errors" || { cat "$room/errors" >&2 && exit 1; }
        awk -v what="$schedule, $*" -v p="$(figure makespan_predicted)" -v m="$(figure makespan_measured)" 'BEGIN {
            printf "%6.1f %%  predicted %8.2f ms, measured %8.2f ms  %s\n", 100 * (p / m - 1), 1e3 * p, 1e3 * m, what }'
    done
}
{ compare gpt && compare gpt -D width=128 -D rows=2; } | tee "$room/all" || exit 1
awk -v cores="$(nproc)" '{ e = $1 < 0 ? -$1 : $1; x[NR] = e } END {
    for (i = 2; i <= NR; i++) for (j = i; j > 1 && x[j] < x[j - 1]; j--) { t = x[j]; x[j] = x[j - 1]; x[j - 1] = t }
    for (i = 1; i <= NR; i++) within += x[i] <= 5
    printf "predicted and measured makespan, %d runs on %d cores: median error %.1f %%, worst %.1f %%, %d within 5 %%\n",
        NR, cores, x[int((NR + 1) / 2)], x[NR], within }' "$room/all"
