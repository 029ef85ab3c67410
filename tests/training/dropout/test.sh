#!/usr/bin/env bash
# Checks dropout through the real command: values are dropped as the seed decides, in training only, and resumed runs
# drop the same ones. The matrix (tests/training/matrix/memory.tsv) compares schedules and transports with one rank.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
. tests/support/ranks.sh
text=/usr/share/common-licenses/GPL-3

integers=(-D batches=8 --model tests/training/dropout/integers.lua --steps 3)
wanted=$(train schedules/serial.lua "${integers[@]}" | field weights)
expect "dropout changes the weights" "other weights" "$([ "$wanted" != "$(train schedules/serial.lua "${integers[@]}" -D p=0 | field weights)" ] && echo other weights)"
expect "another seed drops other values" "other weights" "$([ "$wanted" != "$(train schedules/serial.lua "${integers[@]}" --seed 9 | field weights)" ] && echo other weights)"
gpt=(--model schedules/models/gpt.lua -D layers=4 -D width=16 -D heads=4 -D context=16 -D rows=2 -D batches=4 --data "$text" -D dropout=0.3 --steps 4)
for model in gpt2 llama; do
    expect "$model.lua supports dropout" yes "$(a=$(train schedules/1f1b.lua --model schedules/models/$model.lua -D layers=2 -D width=16 -D heads=2 ${kv-} -D context=16 -D rows=2 -D vocab=256 -D dropout=0.3 --data "$text" --steps 2 | field loss_last)
        b=$(train schedules/1f1b.lua --model schedules/models/$model.lua -D layers=2 -D width=16 -D heads=2 -D context=16 -D rows=2 -D vocab=256 -D dropout=1e-12 --data "$text" --steps 2 | field loss_last); [ -n "$a" ] && [ "$a" != "$b" ] && echo yes)"
done

# --steps 0 and validation drop nothing. A probability of 1e-12 drops nothing and gives the same weights.
still=(schedules/1f1b.lua "${gpt[@]}" -D lr=1e-30)
loss() { train "${still[@]}" --steps 0 -D dropout="$1" | field loss; }
expect "the loss of --steps 0 has no dropout" "$(loss 1e-12)" "$(loss 0.3)"
for p in 0.3 1e-12; do
    train "${still[@]}" -D dropout=$p --steps 2 --val "$text" --val-every 2 --metrics "$room/metrics-$p" >/dev/null
done
expect "the validation loss has no dropout" \
    "$(grep validation "$room/metrics-1e-12")" "$(grep validation "$room/metrics-0.3")"
expect "the training loss has dropout" "another" "$([ "$(grep -o '"loss": [^,]*' "$room/metrics-0.3")" != "$(grep -o '"loss": [^,]*' "$room/metrics-1e-12")" ] && echo another)"
expect "a probability of 1" 1 "$("$PIANOLA" check schedules/1f1b.lua --model tests/training/dropout/integers.lua -D p=1.0 2>&1 | grep -c "'p' must be a number from 0 to below 1")"

# Ranks as processes, resumed from a checkpoint.
compiled text 1f1b "${gpt[@]:0:14}" -D dropout=0.3
want=$(train schedules/1f1b.lua "${gpt[@]}" | field weights)
rm -rf "$saved"
tcp text 4 --steps 2 --data "$text" --checkpoint "$saved"
ended 60
tcp text 4 --steps 4 --data "$text" --checkpoint "$saved" --resume
ended 60
expect "a run resumed from a checkpoint" "$want" "$(weights)"
finish
