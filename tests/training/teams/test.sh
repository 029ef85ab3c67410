#!/usr/bin/env bash
# Teams: each rank of a schedule becomes a team (-D tensor=2), whose members divide the layers. Checkpoints move between
# team sizes, and the proof requires every member's part of a gradient. The matrix (tests/training/matrix/teams.tsv) has
# their training.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
. tests/support/ranks.sh
integers=(--model schedules/models/integers.lua)
gpt=(--model schedules/models/gpt.lua --data /usr/share/common-licenses/GPL-3)
export OPENBLAS_NUM_THREADS=1

in_process() { timeout 120 "$PIANOLA" run "$@" --json 2>"$room/said" | field weights; }

# ---- homes of members: each list of ranks is one home, however many there are and in whatever order they come ----

expect "128 replicas, in teams of 2" "proved" "$(timeout 60 "$PIANOLA" check schedules/hsdp.lua -D workers=512 \
    -D batches=1024 -D tensor=2 2>&1 | grep -o 'proved')"

got=$(timeout 120 "$PIANOLA" run schedules/1f1b.lua -D tensor=2 "${integers[@]}" --steps 3 --compare --json 2>/dev/null)
expect "--compare runs one rank with whole layers" "0 true" \
    "$(field one_rank_largest_difference <<<"$got") $(field one_rank_same_weights <<<"$got")"
# Norms of each head's queries and keys. Members that divide the heads sum the gradients of the shared scales, wherever
# the cuts are and however the weights are sharded or sent. If the stage is whole, each member has the whole gradient.
heads=(--model schedules/models/llama.lua -D qk_norm=true -D kv_heads=4 "${gpt[@]:2}")
# The proof requires the gradient to be the sum over both members.
"$PIANOLA" show schedules/1f1b.lua -D workers=2 -D stages=2 -D batches=2 -D tensor=2 "${heads[@]:0:6}" --format streams >"$room/streams"
expect "norms of heads: the text is proved" 0 "$("$PIANOLA" verify "$room/streams" >/dev/null 2>&1; echo $?)"
sed '/^B 0\.1 1/s/ du+=wgrad(0)//' "$room/streams" >"$room/without"
expect "without a member's last part it is refuted" \
    "U 0: its gradient has 3 of 4 contributions; it must be the sum over all 2 microbatches of all members, each once" \
    "$("$PIANOLA" verify "$room/without" 2>&1 | sed -n '2s/.*: U/U/p')"

# ---- programs for the following checkpoints ----

small=(-D workers=2 -D stages=2 -D batches=4 -D width=32 -D layers=2)
compiled gpt 1f1b "${small[@]}" -D tensor=2 --model schedules/models/gpt.lua
tied=("${gpt[@]}" -D tied=true) # members divide the table by tokens
compiled tied 1f1b "${small[@]}" -D tensor=2 --model schedules/models/gpt.lua -D tied=true
compiled heads 1f1b "${small[@]}" -D tensor=2 --model schedules/models/llama.lua -D qk_norm=true
grep -qE 'LAYER_linear.*SPLIT_COLUMNS, \.member = 1, \.members = 2, \.group = \{32, 32, 32\}' "$room/gpt/rank1.cu"
expect "queries, keys and values are each divided" 0 $?

# ---- checkpoints hold whole layers: teams of 2, no team, a team of 4, sharded teams of 2 ----

leg() { # NAME RANKS STEPS ARGS...
    tcp "$1" "$2" --steps "$3" --checkpoint "$saved" --every 100 --resume --deadline 60 "${@:4}"
    ended 90
    expect "$1 resumes to step $3" "" "$(said 'error:')"
}
pipeline=(-D workers=2 -D stages=2 "${integers[@]}")
compiled integers 1f1b "${pipeline[@]}" -D tensor=2
compiled one serial -D batches=8 "${integers[@]}"
compiled four serial -D batches=8 -D tensor=4 "${integers[@]}"
compiled shards fsdp -D workers=2 -D batches=8 -D tensor=2 "${integers[@]}"
wanted=$(in_process schedules/1f1b.lua "${pipeline[@]}" -D batches=8 --steps 12)
step=0
for next in "integers 4" "one 1" "four 4" "shards 4" "integers 4" "shards 4"; do
    # shellcheck disable=SC2086
    leg $next $((step += 2))
done
expect "one after the other, two steps each: the weights of twelve steps of one" "$wanted" "$(weights)"
expect "the export has whole layers" \
    "16 x 16" "$("$PIANOLA" export-weights "$saved" -o "$room/all.safetensors" >/dev/null &&
    grep -aoE '"layer.0.weight":\{[^}]*"shape":\[[0-9,]*\]' "$room/all.safetensors" | sed -E 's/.*\[([0-9]+),([0-9]+)\]/\1 x \2/')"
# With AdamW's moments, and with biases and scales that each member has whole.
rm -r "$saved"
data=(--data "${gpt[3]}")
compiled alone serial -D stages=2 -D batches=4 -D width=32 -D layers=2 --model schedules/models/gpt.lua
leg gpt 4 2 "${data[@]}"
was=$(weights)
leg alone 1 2 "${data[@]}"
expect "one rank reads the teams' weights" "$was" "$(weights)"
leg gpt 4 5 "${data[@]}"
expect "teams resume to the weights of an uninterrupted run" "$(in_process schedules/1f1b.lua "${small[@]}" -D tensor=2 "${gpt[@]}" --steps 5)" \
    "$(weights)"
# A token table in two parts, on one rank, and in four.
rm -r "$saved"
more=("${small[@]:4}" --model schedules/models/gpt.lua -D tied=true)
compiled tied_one serial -D stages=2 "${more[@]}"
compiled tied_four serial -D stages=2 -D tensor=4 "${more[@]}"
leg tied 4 2 "${data[@]}"
was=$(weights)
leg tied_one 1 2 "${data[@]}"
expect "one rank reads the table that two members divided" "$was" "$(weights)"
leg tied_four 4 2 "${data[@]}"
expect "four members read the table" "$was" "$(weights)"
leg tied 4 5 "${data[@]}"
expect "two members resume to the weights of an uninterrupted run" \
    "$(in_process schedules/1f1b.lua "${small[@]}" -D tensor=2 "${tied[@]}" --steps 5)" "$(weights)"
expect "the whole table is exported" "256 x 32" "$("$PIANOLA" export-weights "$saved" -o "$room/all.safetensors" >/dev/null &&
    grep -aoE '"layer.0.token":\{[^}]*"shape":\[[0-9,]*\]' "$room/all.safetensors" | sed -E 's/.*\[([0-9]+),([0-9]+)\]/\1 x \2/')"
# Scales shared by the members, by all heads, and on a single rank.
rm -r "$saved"
compiled heads_one serial -D stages=2 "${small[@]:4}" --model schedules/models/llama.lua -D qk_norm=true
leg heads 4 2 "${data[@]}"
was=$(weights)
leg heads_one 1 2 "${data[@]}"
expect "one rank reads the scales that two members share" "$was" "$(weights)"
leg heads 4 5 "${data[@]}"
expect "members with norms resume to the weights of an uninterrupted run" \
    "$(in_process schedules/1f1b.lua "${small[@]}" -D tensor=2 "${heads[@]:0:4}" "${gpt[@]:2}" --steps 5)" "$(weights)"
rm -r "$saved"
leg gpt 4 5 "${data[@]}" # for the following checks
# An error names the whole layer that does not fit.
compiled wide 1f1b -D workers=2 -D stages=2 -D batches=4 -D width=64 -D layers=2 -D tensor=2 --model schedules/models/gpt.lua
tcp wide 4 --steps 6 --checkpoint "$saved" --resume "${data[@]}" --deadline 60
ended 90
expect "a model of another width is refused" yes \
    "$(grep -qhE 'step-0*5/stage-0000.safetensors: layer.0.token is [0-9]+ x 32, but this model.s is [0-9]+ x 64' "$room"/err* && echo yes)"

finish
