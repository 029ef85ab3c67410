#!/usr/bin/env bash
# Trains the models with compiled units that `make gpu-check-pack` brought along, each by a rank's own program, and
# compares the losses with those that came with it: units.sh DIR. Every model must be within 1e-5, relative.
#   scale       a hand-written unit, whose kernels the driver compiles (PTX); expected: the host's losses
#   small_gpt   PyTorch's, with Triton's machine code for an H100, if `make gpu-check-export` ran; expected: PyTorch's
cd "$(dirname "$0")/../../.." || exit 2
. tests/gpu/device/lib.sh
export STANDIN_PTX=$PWD/tests/gpu/ptx/to_cpp.py # for the stand-in
bad=0
for model in "$DIR"/ranks/units/*/; do
    # shellcheck disable=SC2046
    "$model/rank0" $(cat "$model/flags") --losses "$room/losses.tsv" >"$room/said" 2>&1 ||
        { tail -n 3 "$room/said" && bad=1 && continue; }
    paste <(cut -f 3 "$model/expected.tsv") <(cut -f 3 "$room/losses.tsv") | awk -v name="$(basename "$model")" '
        NR > 1 { n++; d = $2 / $1 - 1; d = d < 0 ? -d : d; worst = d > worst ? d : worst; if ($2 == "") worst = 1 }
        END { printf "%s: %d losses, within %.1e of the expected\n", name, n, worst; exit !(n > 0 && worst < 1e-5) }' || bad=1
done
exit $bad
