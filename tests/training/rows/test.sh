#!/usr/bin/env bash
# Checkpoints of teams whose members hold their own rows between the layers that they divide (-D parallel=sequence). The
# matrix (tests/training/matrix, feature rows) has their training.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
. tests/support/ranks.sh
integers=(--model schedules/models/integers.lua -D rows=4 -D batches=8)
by_rows=(-D parallel=sequence)
export OPENBLAS_NUM_THREADS=1

in_process() { timeout 120 "$PIANOLA" run "$@" --json 2>"$room/said" | field weights; }
pipeline=(-D workers=2 -D stages=2 "${integers[@]}")
gpt=(--model schedules/models/gpt.lua --data /usr/share/common-licenses/GPL-3)
compiled rows 1f1b "${pipeline[@]}" -D tensor=2 "${by_rows[@]}"

# ---- they hold whole layers: by rows, by columns alone, without a team ----

leg() { # NAME RANKS STEPS ARGS...
    tcp "$1" "$2" --steps "$3" --checkpoint "$saved" --every 100 --resume --deadline 60 "${@:4}"
    ended 90
    expect "$1 resumes to step $3" "" "$(said 'error:')"
}
compiled one serial "${integers[@]}"
compiled four serial -D tensor=4 "${integers[@]}" "${by_rows[@]}"
compiled columns 1f1b "${pipeline[@]}" -D tensor=2
wanted=$(in_process schedules/1f1b.lua "${pipeline[@]}" --steps 10)
step=0
for next in "rows 4" "one 1" "four 4" "columns 4" "rows 4"; do
    # shellcheck disable=SC2086
    leg $next $((step += 2))
done
expect "one after the other, two steps each: the weights of ten steps of one" "$wanted" "$(weights)"

rm -r "$saved"
data=(--data "${gpt[3]}")
small=(-D workers=2 -D stages=2 -D batches=4 -D width=32 -D layers=2)
compiled gpt 1f1b "${small[@]}" -D tensor=2 "${by_rows[@]}" "${gpt[@]:0:2}"
compiled alone serial "${small[@]:2}" "${gpt[@]:0:2}"
leg gpt 4 2 "${data[@]}"
was=$(weights)
leg alone 1 2 "${data[@]}"
expect "one rank reads the members' weights, including norms" "$was" "$(weights)"
leg gpt 4 5 "${data[@]}"
expect "teams resume to the weights of an uninterrupted run" \
    "$(in_process schedules/1f1b.lua "${small[@]}" -D tensor=2 "${by_rows[@]}" "${gpt[@]}" --steps 5)" "$(weights)"

finish
