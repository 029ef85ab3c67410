#!/usr/bin/env bash
# Checks clipping by the global gradient norm, through the real command: the norm matches exact fractions in Python, and
# the update matches PyTorch's. The matrix (tests/training/matrix/updates.tsv, feature clip) compares schedules and
# transports with one rank.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
. tests/support/ranks.sh
for numpy in ${PYTHON:-python3 /usr/bin/python3}; do # make deps installs numpy for the second
    ! "$numpy" -c 'import numpy' 2>/dev/null || break
done
text=/usr/share/common-licenses/GPL-3
integers=(-D batches=8 --model schedules/models/integers.lua)
gpu=$PWD/build/standin

wanted=$(train schedules/serial.lua "${integers[@]}" --steps 1 -D clip=0.5 | field weights)
expect "the clip acts" "other weights" "$([ "$wanted" != "$(train schedules/serial.lua "${integers[@]}" --steps 1 | field weights)" ] && echo other weights)"
expect "a large clip changes nothing" "$(train schedules/serial.lua "${integers[@]}" --steps 3 | field weights)" \
    "$(train schedules/serial.lua "${integers[@]}" --steps 3 -D clip=1e6 | field weights)"
for schedule in schedules/*.lua; do
    several_updates "$schedule" || continue
    expect "$schedule: refused" 1 "$("$PIANOLA" check "$schedule" --model schedules/models/integers.lua -D clip=1 2>&1 | grep -c 'clip needs the norm of all gradients')"
done
gpt=(--model schedules/models/gpt.lua -D layers=4 -D width=16 -D heads=2 -D context=16 -D rows=2 -D batches=4 --data "$text" -D clip=0.2 --steps 8)
# Checks the norm and update of ranks as processes, from the checkpoint of step 1, where momentum equals the gradient.
small=(--model tests/training/recipe/small.lua -D batches=4 -D workers=2 -D optimizer=momentum)
for clip in 1e30 0.05; do
    compiled "of-$clip" 1f1b "${small[@]}" -D clip=$clip
    tcp "of-$clip" 2 --steps 1 --every 1 --checkpoint "$saved" --data "$text" --metrics "$room/metrics-$clip"
    ended 60
    mv "$saved/step-00000001" "$room/step-$clip"
    rm -r "$saved"
done
expect "the norm equals exact fractions, and the update PyTorch's" "" \
    "$($numpy -B tests/training/clip/judge.py "$room/step-1e30" "$room/metrics-1e30" "$room/step-0.05" "$room/metrics-0.05" 0.05 2>&1 | tail -n 1)"
expect "the norm is printed with all its digits" "$(train schedules/1f1b.lua "${small[@]}" -D clip=0.05 --steps 1 --data "$text" | field gradient_norm_last)" \
    "$(sed -nE 's/.*"gradient_norm": ([^,]*),.*/\1/p' "$room/metrics-0.05")"

expect "GPT on the stand-in, in a graph: the host's norms" "$(train schedules/1f1b.lua "${gpt[@]}" --metrics "$room/a" >/dev/null; cut -d, -f4 "$room/a" | cut -c1-24)" \
    "$(PIANOLA_CUDA=$gpu/libpianola-cuda.so train schedules/1f1b.lua "${gpt[@]}" --metrics "$room/b" --device cuda >/dev/null; cut -d, -f4 "$room/b" | cut -c1-24)"
# NaN and infinite norms pass through as in PyTorch; the metrics say null.
expect "a norm that is NaN" "null null" "$(train schedules/1f1b.lua "${gpt[@]}" -D lr=1e30 --allow-nonfinite --metrics "$room/nan" | field gradient_norm_last) \
$(tail -n 1 "$room/nan" | sed -nE 's/.*"gradient_norm": ([^,]*),.*/\1/p')"
expect "a run without clip reports no norm" null "$(train schedules/1f1b.lua "${gpt[@]}" -D clip=0 --metrics "$room/none" >/dev/null; tail -n 1 "$room/none" | sed -nE 's/.*"gradient_norm": ([^,]*),.*/\1/p')"
finish
