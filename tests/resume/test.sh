#!/usr/bin/env bash
# Checkpoints of sharded stages: the files are those of whole ones, so a run goes on under another schedule, with other
# shards or none, to the bits of a run that never stopped.
cd "$(dirname "$0")/../.." || exit 2
. tests/support/lib.sh
. tests/support/ranks.sh
data=(--data /usr/share/common-licenses/GPL-3)

# leg HOW NAME RANKS STEPS: goes on, over tcp or mpi, to so many steps.
leg() {
    $1 "$2" "$3" "${data[@]}" --steps "$4" --checkpoint "$saved" --every 100 --resume --deadline 60
    ended 90
}
# unbroken SCHEDULE STEPS ARGS...: the weights of a run in one process that never stops.
unbroken() {
    "$PIANOLA" run "schedules/$1.lua" "${@:3}" "${data[@]}" --steps "$2" 2>/dev/null |
        sed -n 's/^weights *\([0-9a-f]*\).*/\1/p'
}

# Three ranks, which all add gradients in the same order; three do not divide the stages' weights, and AdamW has moments.
three=(--model schedules/models/gpt.lua -D workers=3 -D batches=6 -D width=16 -D layers=2)
ten=$(unbroken ddp 10 "${three[@]}")
for schedule in ddp fsdp zero1 zero2; do
    compiled $schedule $schedule "${three[@]}"
    expect "$schedule: the weights of ddp" "$ten" "$(unbroken $schedule 10 "${three[@]}")"
done
steps=0
for schedule in ddp fsdp zero1 zero2 ddp; do
    steps=$((steps + 2))
    leg "$([ $((steps % 4)) = 0 ] && echo mpi || echo tcp)" $schedule 3 $steps
    expect "$schedule ends well" "" "$(said 'error:')"
    expect "$schedule goes on" "$([ $steps = 2 ] || echo "resumed   from step $((steps - 2))")" \
        "$(sed -n '/^resumed/p' "$room/out0")"
done
expect "ddp, fsdp, zero1, zero2 and ddp again, two steps each: the weights of ten of one" "$ten" "$(weights)"

# Two replicas of each stage, in two shards of two pieces; and a pipeline without any.
rm -r "$saved"
data=()
integers=(--model schedules/models/integers.lua)
compiled hsdp hsdp "${integers[@]}" -D workers=4 -D group=2 -D zero=1
compiled pipeline 1f1b "${integers[@]}"
leg tcp hsdp 4 2
leg mpi pipeline 4 3
leg tcp hsdp 4 4
expect "hsdp, 1f1b and hsdp again: the weights of four steps of one" "$(unbroken 1f1b 4 "${integers[@]}")" "$(weights)"
finish
