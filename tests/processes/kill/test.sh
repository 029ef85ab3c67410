#!/usr/bin/env bash
# Kills and stops ranks at random moments, N of them (see tests/processes/kill/kill.c). The others end in time and
# report where they were, nothing is left running, and the run resumes to the weights of an undisturbed one. To repeat a
# fault: SEED=<seed> FAULT=<number> tests/processes/kill/test.sh
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PKG_CONFIG_PATH=$PWD/build:$PKG_CONFIG_PATH
export TMPDIR=$room OMPI_MCA_btl_vader_backing_directory=$room # removes the leftovers of killed ranks together with the room

compiled() { "$PIANOLA" compile "schedules/$2.lua" "${@:3}" -o "$room/$1" && make -s -C "$room/$1" || exit 2; }
integers=(--model schedules/models/integers.lua -D width=128 -D rows=32)
for schedule in 1f1b serial; do
    compiled $schedule $schedule "${integers[@]}"
done
compiled gpipe gpipe "${integers[@]}" -D workers=2
for schedule in ddp fsdp; do
    compiled $schedule $schedule "${integers[@]}" -D workers=4
done
compiled gpt 1f1b --model schedules/models/gpt.lua -D workers=2 -D layers=2 -D width=16 -D context=16 -D rows=4

seed=${SEED:-$RANDOM}
echo "seed $seed"
if [ -n "$FAULT" ]; then
    "$(dirname "$PIANOLA")/kill" "$room" "$FAULT" "$seed" 0
else
    "$(dirname "$PIANOLA")/kill" "$room" "${N:-100}" "$seed" "${WORKERS:-4}"
fi
