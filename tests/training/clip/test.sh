#!/usr/bin/env bash
# Checks clipping by the global gradient norm, through the real command. On integer-valued data, gradients have the same
# bits in any order. There a clipped update matches one rank bit for bit, under every schedule and transport and on the
# CUDA stand-in. On a text, the norm matches exact fractions in Python, and the update matches PyTorch's.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
. tests/support/ranks.sh
for numpy in ${PYTHON:-python3 /usr/bin/python3}; do # make deps installs numpy for the second
    ! "$numpy" -c 'import numpy' 2>/dev/null || break
done
text=/usr/share/common-licenses/GPL-3
integers=(-D batches=8 --model schedules/models/integers.lua)
gpu=$PWD/build/standin

# Every schedule, for one step: clipped weights are no longer integers, so later sums depend on their order.
read -r wanted norm <<<"$(train schedules/serial.lua "${integers[@]}" --steps 1 -D clip=0.5 | sed -nE 's/^  "(weights|gradient_norm_last)": "?([^,"]*)"?,?$/\2/p' | tac | paste -sd' ')"
expect "the clip acts" "other weights" "$([ "$wanted" != "$(train schedules/serial.lua "${integers[@]}" --steps 1 | field weights)" ] && echo other weights)"
expect "one that is large enough does not" "$(train schedules/serial.lua "${integers[@]}" --steps 3 | field weights)" \
    "$(train schedules/serial.lua "${integers[@]}" --steps 3 -D clip=1e6 | field weights)"
for schedule in schedules/*.lua; do
    if several_updates "$schedule"; then
        expect "$schedule: refused" 1 "$("$PIANOLA" check "$schedule" --model schedules/models/integers.lua -D clip=1 2>&1 | grep -c 'clip needs the norm of all gradients')"
        continue
    fi
    got=$(train "$schedule" "${integers[@]}" --steps 1 -D clip=0.5)
    expect "$schedule: weights and norm of one rank" "$wanted $norm" "$(field weights <<<"$got") $(field gradient_norm_last <<<"$got")"
done
for how in "1f1b -D tensor=2" "1f1b -D tensor=2 -D parallel=sequence" "ddp -D tensor=2 -D parallel=sequence" "fsdp -D tensor=2" \
    "zero2 -D tensor=2 -D parallel=sequence" "hsdp -D zero=1" "hsdp -D zero=2" "1f1b --recompute" "1f1b --lanes rank" "fsdp --prefetch one-ahead"; do
    read -r name rest <<<"$how"
    # shellcheck disable=SC2086
    got=$(train "schedules/$name.lua" "${integers[@]}" --steps 1 -D clip=0.5 $rest)
    expect "$how: weights and norm of one rank" "$wanted $norm" "$(field weights <<<"$got") $(field gradient_norm_last <<<"$got")"
done
for ((seed = 1, n = 0; n < 40 && seed < 80; seed++)); do # random placements
    got=$(train tests/papers/formulas/random.lua -D seed=$seed --model schedules/models/integers.lua -D clip=0.5 --steps 1 --compare) || continue
    n=$((n + 1))
    expect "random schedule, seed $seed" true "$(field one_rank_same_weights <<<"$got")"
done
expect "random schedules" 40 "$n"

# On a text: losses close to one rank's where sums come in another order, and one rank's bits where they do not.
gpt=(--model schedules/models/gpt.lua -D layers=4 -D width=16 -D heads=2 -D context=16 -D rows=2 -D batches=4 --data "$text" -D clip=0.2 --steps 8)
for how in 1f1b zbv "1f1b -D tied=true" vocab_parallel ddp zero1 zero2 fsdp hsdp "1f1b -D tensor=2" "tp -D parallel=sequence -D heads=4" 1f1b_offload \
    "context -D parallel=context" terapipe; do
    read -r name rest <<<"$how"
    # shellcheck disable=SC2086
    far=$(train "schedules/$name.lua" "${gpt[@]}" $rest --compare | field one_rank_largest_difference)
    expect "GPT, $how: losses of one rank ($far)" yes "$(awk -v d="$far" 'BEGIN { print d != "" && d <= 1e-5 ? "yes" : "no" }')"
done
expect "GPT, 1f1b: the bits of one rank" true "$(train schedules/1f1b.lua "${gpt[@]}" --compare | field one_rank_same_weights)"

# Checks the norm and update of ranks as processes, from the checkpoint of step 1, where momentum equals the gradient.
small=(--model tests/training/recipe/small.lua -D batches=4 -D workers=2 -D optimizer=momentum)
for clip in 1e30 0.05; do
    compiled "of-$clip" 1f1b "${small[@]}" -D clip=$clip
    tcp "of-$clip" 2 --steps 1 --every 1 --checkpoint "$saved" --data "$text" --metrics "$room/metrics-$clip"
    ended 60
    mv "$saved/step-00000001" "$room/step-$clip"
    rm -r "$saved"
done
expect "the norm is that of fractions, and the update PyTorch's" "" \
    "$($numpy -B tests/training/clip/judge.py "$room/step-1e30" "$room/metrics-1e30" "$room/step-0.05" "$room/metrics-0.05" 0.05 2>&1 | tail -n 1)"
expect "a norm is told without loss of digits" "$(train schedules/1f1b.lua "${small[@]}" -D clip=0.05 --steps 1 --data "$text" | field gradient_norm_last)" \
    "$(sed -nE 's/.*"gradient_norm": ([^,]*),.*/\1/p' "$room/metrics-0.05")"

# Transports and devices.
for name in 1f1b ddp zero1 fsdp hsdp; do
    compiled $name $name "${integers[@]}" -D clip=0.5
    n=$(ls "$room/$name"/rank*.cu | wc -l)
    tcp $name "$n" --steps 1
    ended 60
    expect "$name over TCP" "$wanted" "$(weights)"
    mpi $name "$n" --steps 1
    ended 60
    expect "$name over MPI" "$wanted" "$(weights)"
    for graph in "" --no-graph; do
        # shellcheck disable=SC2086
        expect "$name on the stand-in $graph" "$wanted $norm" "$(PIANOLA_CUDA=$gpu/libpianola-cuda.so train schedules/$name.lua "${integers[@]}" -D clip=0.5 --steps 1 \
            --device cuda $graph | sed -nE 's/^  "(weights|gradient_norm_last)": "?([^,"]*)"?,?$/\2/p' | tac | paste -sd' ')"
    done
    # The shares of zero1 lie in one page, which tests/gpu/put covers.
    expect "$name with put" "$wanted" "$(PIANOLA_CUDA=$gpu/libpianola-put.so STANDIN_PAGES=$([ $name = zero1 ] || echo 1) train schedules/$name.lua "${integers[@]}" -D clip=0.5 --steps 1 --device cuda | field weights)"
done
expect "GPT on the stand-in, in a graph: its norms" "$(train schedules/1f1b.lua "${gpt[@]}" --metrics "$room/a" >/dev/null; cut -d, -f4 "$room/a" | cut -c1-24)" \
    "$(PIANOLA_CUDA=$gpu/libpianola-cuda.so train schedules/1f1b.lua "${gpt[@]}" --metrics "$room/b" --device cuda >/dev/null; cut -d, -f4 "$room/b" | cut -c1-24)"
suffix=.gpu
export PKG_CONFIG_PATH=$gpu:$PKG_CONFIG_PATH
for name in 1f1b zero1 zero2; do
    compiled $name-gpu $name "${integers[@]}" -D clip=0.5
    for flags in "" "--messages put" "--reduce ordered"; do
        # shellcheck disable=SC2086
        mpi $name-gpu "$(ls "$room/$name-gpu"/rank*.cu | wc -l)" --steps 1 $flags
        ended 120
        expect "$name on GPUs $flags" "$wanted" "$(weights)"
    done
done

# NaN and infinite norms pass through as in PyTorch; the metrics say null.
expect "a norm that is no number" "null null" "$(train schedules/1f1b.lua "${gpt[@]}" -D lr=1e30 --allow-nonfinite --metrics "$room/nan" | field gradient_norm_last) \
$(tail -n 1 "$room/nan" | sed -nE 's/.*"gradient_norm": ([^,]*),.*/\1/p')"
expect "what is not clipped has none" null "$(train schedules/1f1b.lua "${gpt[@]}" -D clip=0 --metrics "$room/none" >/dev/null; tail -n 1 "$room/none" | sed -nE 's/.*"gradient_norm": ([^,]*),.*/\1/p')"
finish
