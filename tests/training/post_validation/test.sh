#!/usr/bin/env bash
# Checks post-validation through the real command: updates run before the norm is known, and clipped ones are redone.
# The same run without it, in which each rank waits, has the same bits in its weights, whatever was clipped.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
. tests/support/ranks.sh
text=/usr/share/common-licenses/GPL-3
gpu=$PWD/build/standin
gpt=(--model schedules/models/gpt.lua -D layers=4 -D width=16 -D heads=2 -D context=16 -D rows=2 -D batches=4 --data "$text")
late=(-D post_validation=true)

# A clip that affects some updates and not others.
norms=$(train schedules/1f1b.lua "${gpt[@]}" --steps 12 -D clip=1e9 --metrics "$room/norms" >/dev/null; sed -nE 's/.*"gradient_norm": ([^,]*),.*/\1/p' "$room/norms")
clip=$(sort -g <<<"$norms" | sed -n 5p)
expect "of 12 steps, 7 are clipped: by $clip" "7" "$(awk -v c="$clip" '$1 > c' <<<"$norms" | wc -l)"

# Every schedule that can clip, and every way to divide sums and weights.
for how in serial $(for s in schedules/*.lua; do several_updates "$s" || basename "$s" .lua; done) \
    "1f1b -D tied=true" "1f1b -D tensor=2" "tp -D parallel=sequence -D heads=4" "fsdp -D tensor=2" "hsdp -D zero=1" "hsdp -D zero=2" \
    "1f1b --recompute" "1f1b --lanes rank" "1f1b_offload -D state=true" "context -D parallel=context"; do
    read -r name rest <<<"$how"
    # shellcheck disable=SC2086
    plain=$(train "schedules/$name.lua" "${gpt[@]}" $rest --steps 6 -D clip=$clip) || continue # not of this size
    # shellcheck disable=SC2086
    ahead=$(train "schedules/$name.lua" "${gpt[@]}" $rest --steps 6 -D clip=$clip "${late[@]}")
    tried=$((${tried:-0} + 1))
    expect "$how: the weights, losses and norm of ranks that wait" \
        "$(for f in weights loss_first loss_last gradient_norm_last; do field $f <<<"$plain"; done)" \
        "$(for f in weights loss_first loss_last gradient_norm_last; do field $f <<<"$ahead"; done)"
done
expect "schedules tried" yes "$([ "${tried:-0}" -ge 40 ] && echo yes || echo "$tried")"

# Counts steps that run twice: none if nothing is clipped; one if everything is, because then all ranks wait from there
# on.
for case in "1e9 0" "1e-3 1"; do
    read -r at want <<<"$case"
    expect "clip = $at: steps that run twice" "$want" "$(train schedules/zb_h2.lua "${gpt[@]}" "${late[@]}" -D clip=$at --steps 8 | field steps_run_twice)"
done
expect "clipped now and then: some do" yes "$(awk -v n="$(train schedules/zb_h2.lua "${gpt[@]}" "${late[@]}" -D clip=$clip --steps 12 | field steps_run_twice)" 'BEGIN { print (n > 0 && n < 8 ? "yes" : n) }')"

# Every optimizer; infinite values and NaN; held-out text and records, before which all updates are settled.
for optimizer in sgd adamw momentum muon; do
    for at in 0.05 1e30; do
        small=(--model tests/training/recipe/small.lua -D batches=4 -D workers=4 -D optimizer=$optimizer -D clip=$at --data "$text" --steps 5)
        expect "$optimizer, clip = $at" "$(train schedules/zbv.lua "${small[@]}" | field weights)" "$(train schedules/zbv.lua "${small[@]}" "${late[@]}" | field weights)"
    done
done
wild=(schedules/1f1b.lua "${gpt[@]}" -D clip=1 -D lr=1e30 --allow-nonfinite --steps 4)
expect "what is no number stays none" "$(train "${wild[@]}" | field weights)" "$(train "${wild[@]}" "${late[@]}" | field weights)"
for p in "" "${late[*]}"; do
    # shellcheck disable=SC2086
    train schedules/zb_h2.lua "${gpt[@]}" -D clip=$clip $p --steps 6 --val "$text" --val-every 2 --metrics "$room/metrics${p:+-late}" >/dev/null
    sed -E 's/"(seconds|tokens_per_second|waited_seconds|memory[a-z_]*)": [^,}]*//g' "$room/metrics${p:+-late}" >"$room/told${p:+-late}"
done
expect "metrics, validations among them" "$(cat "$room/told")" "$(cat "$room/told-late")"
expect "metrics of 6 steps, 4 validations" 10 "$(wc -l <"$room/told-late")"

# With one rank, nothing is left to validate. Without a clip, the option is an error.
expect "one rank" "$(train schedules/serial.lua "${gpt[@]}" -D clip=$clip --steps 2 -D workers=1 | field weights)" \
    "$(train schedules/serial.lua "${gpt[@]}" -D clip=$clip --steps 2 "${late[@]}" | field weights)"
expect "without clip" 1 "$("$PIANOLA" check schedules/1f1b.lua --model schedules/models/gpt.lua "${late[@]}" 2>&1 | grep -c 'post_validation is of clip, which is 0')"

# Ranks as processes; checkpoints and resumed runs.
for name in 1f1b zb_h2 zero1 fsdp; do
    want=$(train schedules/$name.lua "${gpt[@]}" -D clip=$clip --steps 6 | field weights)
    compiled $name $name "${gpt[@]:0:14}" -D clip=$clip "${late[@]}"
    n=$(ls "$room/$name"/rank*.cu | wc -l)
    tcp $name "$n" --steps 6 --data "$text"
    ended 60
    expect "$name over TCP" "$want" "$(weights)"
    mpi $name "$n" --steps 6 --data "$text"
    ended 60
    expect "$name over MPI" "$want" "$(weights)"
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

# GPUs, in one process and in several.
for name in 1f1b zb_h2 zero1; do
    for way in "" --no-graph "-D precision=bf16"; do
        [ "$name" != zero1 ] || [ -z "${way##*bf16*}" ] || [ -z "$way" ] || continue
        for optimizer in adamw muon; do
            [ $optimizer = adamw ] || [ $name = 1f1b ] || continue
            model=("${gpt[@]}")
            [ $optimizer = adamw ] || model=(--model tests/training/recipe/small.lua -D batches=4 -D workers=4 -D optimizer=muon --data "$text")
            [ $optimizer = adamw ] || [ -n "${way##*bf16*}" ] || continue
            at=$([ $optimizer = adamw ] && echo "$clip" || echo 0.05)
            # shellcheck disable=SC2086
            expect "$name, $optimizer on the stand-in $way" "$(PIANOLA_CUDA=$gpu/libpianola-cuda.so train schedules/$name.lua "${model[@]}" -D clip=$at --steps 5 --device cuda $way | field weights)" \
                "$(PIANOLA_CUDA=$gpu/libpianola-cuda.so train schedules/$name.lua "${model[@]}" -D clip=$at "${late[@]}" --steps 5 --device cuda $way | field weights)"
        done
    done
done
suffix=.gpu
export PKG_CONFIG_PATH=$gpu:$PKG_CONFIG_PATH
for name in 1f1b zero1; do
    compiled $name-waits $name "${gpt[@]:0:14}" -D clip=$clip
    compiled $name-gpu $name "${gpt[@]:0:14}" -D clip=$clip "${late[@]}"
    n=$(ls "$room/$name-gpu"/rank*.cu | wc -l)
    for flags in "" "--no-graph" "--messages put" "--reduce ordered"; do
        # shellcheck disable=SC2086
        mpi $name-waits "$n" --steps 5 --data "$text" $flags
        ended 120
        want=$(weights)
        # shellcheck disable=SC2086
        mpi $name-gpu "$n" --steps 5 --data "$text" $flags
        ended 120
        expect "$name on GPUs $flags" "$want" "$(weights)"
    done
done
finish
