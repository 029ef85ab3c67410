#!/usr/bin/env bash
# Checks post-validation through the real command: updates run before the norm is known, and clipped ones are redone.
# Counts the redone updates, and resumes from checkpoints. The matrix (tests/training/matrix/updates.tsv) compares the
# weights with the weights of ranks that wait.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
. tests/support/ranks.sh
text=/usr/share/common-licenses/GPL-3
gpt=(--model schedules/models/gpt.lua -D layers=4 -D width=16 -D heads=2 -D context=16 -D rows=2 -D batches=4 --data "$text")
late=(-D post_validation=true)

# A clip that affects some updates and not others.
norms=$(train schedules/1f1b.lua "${gpt[@]}" --steps 12 -D clip=1e9 --metrics "$room/norms" >/dev/null; sed -nE 's/.*"gradient_norm": ([^,]*),.*/\1/p' "$room/norms")
clip=$(sort -g <<<"$norms" | sed -n 5p)
expect "clip $clip affects 7 of 12 steps" "7" "$(awk -v c="$clip" '$1 > c' <<<"$norms" | wc -l)"

# Counts steps that run twice: none if nothing is clipped; one if everything is, because then all ranks wait from there
# on.
for case in "1e9 0" "1e-3 1"; do
    read -r at want <<<"$case"
    expect "clip = $at: steps that run twice" "$want" "$(train schedules/zb_h2.lua "${gpt[@]}" "${late[@]}" -D clip=$at --steps 8 | field steps_run_twice)"
done
expect "some clipped steps: some run twice" yes "$(awk -v n="$(train schedules/zb_h2.lua "${gpt[@]}" "${late[@]}" -D clip=$clip --steps 12 | field steps_run_twice)" 'BEGIN { print (n > 0 && n < 8 ? "yes" : n) }')"

# Infinite values and NaN; held-out text and records, before which all updates are settled.
wild=(schedules/1f1b.lua "${gpt[@]}" -D clip=1 -D lr=1e30 --allow-nonfinite --steps 4)
expect "NaN stays NaN" "$(train "${wild[@]}" | field weights)" "$(train "${wild[@]}" "${late[@]}" | field weights)"
for p in "" "${late[*]}"; do
    # shellcheck disable=SC2086
    train schedules/zb_h2.lua "${gpt[@]}" -D clip=$clip $p --steps 6 --val "$text" --val-every 2 --metrics "$room/metrics${p:+-late}" >/dev/null
    sed -E 's/"(seconds|tokens_per_second|waited_seconds|memory[a-z_]*)": [^,}]*//g' "$room/metrics${p:+-late}" >"$room/told${p:+-late}"
done
expect "metrics, including validations" "$(cat "$room/told")" "$(cat "$room/told-late")"
expect "metrics of 6 steps, 4 validations" 10 "$(wc -l <"$room/told-late")"

# With one rank, nothing is left to validate. Without a clip, the option is an error.
expect "post-validation with one rank" \
    "$(train schedules/serial.lua "${gpt[@]}" -D clip=$clip --steps 2 -D workers=1 | field weights)" \
    "$(train schedules/serial.lua "${gpt[@]}" -D clip=$clip --steps 2 "${late[@]}" | field weights)"
expect "post-validation without clip" 1 "$("$PIANOLA" check schedules/1f1b.lua --model schedules/models/gpt.lua "${late[@]}" 2>&1 | grep -c 'post_validation needs clip, which is 0')"

# Ranks as processes; checkpoints and resumed runs.
for name in zb_h2 zero1; do
    want=$(train schedules/$name.lua "${gpt[@]}" -D clip=$clip --steps 6 | field weights)
    compiled $name $name "${gpt[@]:0:14}" -D clip=$clip "${late[@]}"
    n=$(ls "$room/$name"/rank*.cu | wc -l)
    rm -rf "$saved"
    tcp $name "$n" --steps 3 --data "$text" --checkpoint "$saved" --every 2
    ended 60
    tcp $name "$n" --steps 6 --data "$text" --checkpoint "$saved" --resume
    ended 60
    expect "$name, from a checkpoint" "$want" "$(weights)"
    compiled plain $name "${gpt[@]:0:14}" -D clip=$clip
    tcp plain "$n" --steps 3 --data "$text" --checkpoint "$saved"
    ended 60
    tcp $name "$n" --steps 6 --data "$text" --checkpoint "$saved" --resume
    ended 60
    expect "$name, from a checkpoint of ranks that wait" "$want" "$(weights)"
    rm -rf "$saved"
done
finish
