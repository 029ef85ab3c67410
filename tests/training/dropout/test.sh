#!/usr/bin/env bash
# Checks dropout through the real command. Every schedule drops the same elements, on hosts and devices, in one process
# and several, and after a resume. Nothing is dropped outside training.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
. tests/support/ranks.sh
text=/usr/share/common-licenses/GPL-3
gpu=$PWD/build/standin

# On integer-valued data every sum is exact, so the bits match one rank under every schedule, including teams.
integers=(-D batches=8 --model tests/training/dropout/integers.lua --steps 3)
wanted=$(train schedules/serial.lua "${integers[@]}" | field weights)
expect "it drops" "other weights" "$([ "$wanted" != "$(train schedules/serial.lua "${integers[@]}" -D p=0 | field weights)" ] && echo other weights)"
expect "another seed, other draws" "other weights" "$([ "$wanted" != "$(train schedules/serial.lua "${integers[@]}" --seed 9 | field weights)" ] && echo other weights)"
tried=0
for schedule in schedules/*.lua; do
    several_updates "$schedule" && continue
    got=$(train "$schedule" "${integers[@]}") || continue
    tried=$((tried + 1))
    expect "$schedule: weights of one rank" "$wanted" "$(field weights <<<"$got")"
done
expect "schedules tried" yes "$([ $tried -ge 30 ] && echo yes || echo $tried)"
for how in "1f1b --recompute" "1f1b -D tensor=2" "1f1b -D tensor=2 -D parallel=sequence" "ddp -D tensor=2 -D parallel=sequence" "fsdp --lanes rank"; do
    read -r name rest <<<"$how"
    # shellcheck disable=SC2086
    expect "$how: weights of one rank" "$wanted" "$(train "schedules/$name.lua" "${integers[@]}" $rest | field weights)"
done

# On a text, with divided slices, context and heads: one rank's losses up to the order of sums.
gpt=(--model schedules/models/gpt.lua -D layers=4 -D width=16 -D heads=4 -D context=16 -D rows=2 -D batches=4 --data "$text" -D dropout=0.3 --steps 4)
for how in zbv "1f1b -D tied=true" terapipe "1f1b -D tensor=2 -D parallel=sequence" "context -D parallel=context" "context -D parallel=ulysses" "1f1b_offload"; do
    read -r name rest <<<"$how"
    # shellcheck disable=SC2086
    far=$(train "schedules/$name.lua" "${gpt[@]}" $rest --compare | field one_rank_largest_difference)
    expect "GPT, $how: losses of one rank ($far)" yes "$(awk -v d="$far" 'BEGIN { print (d != "" && d <= 1e-5 ? "yes" : "no") }')"
done
for model in gpt2 llama; do
    expect "$model.lua has it" yes "$(a=$(train schedules/1f1b.lua --model schedules/models/$model.lua -D layers=2 -D width=16 -D heads=2 ${kv-} -D context=16 -D rows=2 -D vocab=256 -D dropout=0.3 --data "$text" --steps 2 | field loss_last)
        b=$(train schedules/1f1b.lua --model schedules/models/$model.lua -D layers=2 -D width=16 -D heads=2 -D context=16 -D rows=2 -D vocab=256 -D dropout=1e-12 --data "$text" --steps 2 | field loss_last); [ -n "$a" ] && [ "$a" != "$b" ] && echo yes)"
done

# --steps 0 and validation drop nothing. A probability of 1e-12 drops nothing and gives the same weights.
still=(schedules/1f1b.lua "${gpt[@]}" -D lr=1e-30)
loss() { train "${still[@]}" --steps 0 -D dropout="$1" | field loss; }
expect "the first loss" "$(loss 1e-12)" "$(loss 0.3)"
for p in 0.3 1e-12; do
    train "${still[@]}" -D dropout=$p --steps 2 --val "$text" --val-every 2 --metrics "$room/metrics-$p" >/dev/null
done
expect "the validation's loss" "$(grep validation "$room/metrics-1e-12")" "$(grep validation "$room/metrics-0.3")"
expect "but the training's" "another" "$([ "$(grep -o '"loss": [^,]*' "$room/metrics-0.3")" != "$(grep -o '"loss": [^,]*' "$room/metrics-1e-12")" ] && echo another)"
expect "a probability of 1" 1 "$("$PIANOLA" check schedules/1f1b.lua --model tests/training/dropout/integers.lua -D p=1.0 2>&1 | grep -c "'p' must be a number from 0 to below 1")"

# Ranks as processes and a resume from a checkpoint; devices with and without graphs, and with repeating periods.
compiled text 1f1b "${gpt[@]:0:14}" -D dropout=0.3
want=$(train schedules/1f1b.lua "${gpt[@]}" | field weights)
tcp text 4 --steps 4 --data "$text"
ended 60
expect "over TCP" "$want" "$(weights)"
rm -rf "$saved"
tcp text 4 --steps 2 --data "$text" --checkpoint "$saved"
ended 60
tcp text 4 --steps 4 --data "$text" --checkpoint "$saved" --resume
ended 60
expect "from a checkpoint" "$want" "$(weights)"
for name in 1f1b fsdp zbv; do
    for graph in "" --no-graph; do
        # shellcheck disable=SC2086
        expect "$name on the stand-in $graph" "$wanted" "$(PIANOLA_CUDA=$gpu/libpianola-cuda.so train schedules/$name.lua "${integers[@]}" --device cuda $graph | field weights)"
    done
done
for name in pipedream asp; do
    period=(schedules/$name.lua --model tests/training/dropout/integers.lua -D batches=24 --steps 3)
    want=$(train "${period[@]}" | field weights)
    expect "$name on the stand-in, where a period repeats" "${want:-none}" "$(PIANOLA_CUDA=$gpu/libpianola-cuda.so train "${period[@]}" --device cuda | field weights)"
done
suffix=.gpu
export PKG_CONFIG_PATH=$gpu:$PKG_CONFIG_PATH
compiled ints-gpu 1f1b "${integers[@]:0:4}"
mpi ints-gpu 4 --steps 3
ended 120
expect "in processes with GPUs" "$wanted" "$(weights)"
finish
