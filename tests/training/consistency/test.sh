#!/usr/bin/env bash
# Checks local consistency through the real command: every schedule that updates once a step trains as one rank does.
# Integer-valued data with linear and relu layers match bit for bit (schedules/models/integers.lua explains why). Losses
# of a GPT match within 1e-5. So do a Llama's, under one schedule of each kind, and 1F1B keeps its bits too.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
text=/usr/share/common-licenses/GPL-3 # a text on every Debian system

train() { "$PIANOLA" run --json --compare "$@" 2>/dev/null; }

synchronous=()
for schedule in schedules/*.lua; do
    several_updates "$schedule" || synchronous+=("$schedule")
done

wanted=
for schedule in "${synchronous[@]}"; do
    got=$(train "$schedule" -D batches=8 --model schedules/models/integers.lua --steps 3)
    expect "$schedule, integers: same weights as one rank" true "$(field one_rank_same_weights <<<"$got")"
    # The fingerprint does not depend on the partition, so all schedules of 8 microbatches agree with each other too.
    weights=$(field weights <<<"$got")
    expect "$schedule, integers: same weights as every other schedule" "${wanted:=$weights}" "$weights"
done
for schedule in "${synchronous[@]}"; do
    model=(schedules/models/gpt.lua)
    [ "$schedule" = schedules/helixpipe.lua ] && model=(schedules/models/gpt_stages.lua -D layers=4) # has more stages than gpt.lua has layers
    far=$(train "$schedule" --model "${model[@]}" --data "$text" --steps "${GPT_STEPS:-10}" | field one_rank_largest_difference)
    expect "$schedule, GPT: losses of 10 steps within 1e-5 ($far)" yes \
        "$(awk -v d="$far" 'BEGIN { print d != "" && d <= 1e-5 ? "yes" : "no" }')"
done

for schedule in schedules/{1f1b,zb_h1,fslpp,dualpipe,ddp}.lua; do
    got=$(train "$schedule" --model schedules/models/llama.lua -D qk_norm=true --data "$text" --steps "${GPT_STEPS:-10}")
    far=$(field one_rank_largest_difference <<<"$got")
    expect "$schedule, Llama with norms of heads: losses of 10 steps within 1e-5 ($far)" yes \
        "$(awk -v d="$far" 'BEGIN { print d != "" && d <= 1e-5 ? "yes" : "no" }')"
    [ "$schedule" != schedules/1f1b.lua ] || expect "1F1B, Llama with norms of heads: the bits of one rank" "0 true" \
        "$far $(field one_rank_same_weights <<<"$got")"
done

# A measured timeline of one step has the rows of the predicted one: the same instructions on the same lanes.
rows() { cut -f 1,2,5-9 | tail -n +2 | sort; }
measured=$(mktemp)
trap 'rm -f "$measured"' EXIT
for schedule in schedules/*.lua; do
    integers="--model schedules/models/integers.lua"
    # shellcheck disable=SC2086
    "$PIANOLA" run "$schedule" $integers --steps 2 --json --timeline "$measured" >/dev/null 2>&1
    # shellcheck disable=SC2086
    expect "$schedule: measured and predicted timelines have the same rows" "" \
        "$(diff <("$PIANOLA" show "$schedule" $integers --format tsv | rows) <(cut -f 2- "$measured" | rows) | head -n 5)"
done

# Random placements, homes, orders and caps, F and B of a stage on different ranks, split backwards, recompute. If a cap
# deadlocks, the compiler must say so. To repeat a case: pianola run tests/papers/formulas/random.lua -D seed=N ...
trained=0 deadlocked=0
for ((seed = 1; trained < ${CASES:-200}; seed++)); do
    got=$("$PIANOLA" run --json --compare tests/papers/formulas/random.lua -D seed=$seed \
        --model schedules/models/integers.lua --steps 3 2>&1)
    if grep -q 'error: .*deadlock: ' <<<"$got"; then
        deadlocked=$((deadlocked + 1))
        continue
    fi
    trained=$((trained + 1))
    expect "random schedule, seed $seed" true "$(field one_rank_same_weights <<<"$got")"
done
expect "deadlocks of $trained random schedules are few ($deadlocked)" yes \
    "$([ $deadlocked -le $((2 + trained / 5)) ] && echo yes || echo no)"
finish
