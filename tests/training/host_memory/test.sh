#!/usr/bin/env bash
# Stashes and optimizer state in host memory: ranks take the planned bytes, the timeline shows the copies, and
# checkpoints move from runs with state there to runs without, and back. The matrix (tests/training/matrix/memory.tsv)
# has their training.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
. tests/support/ranks.sh
built=$PWD/build
[ -f "$built/standin/libpianola-cuda.a" ] || { echo "libpianola-cuda.a is not in build/standin: make standin"; exit 1; }
export PIANOLA_CUDA=$built/standin/libpianola-cuda.so
chain=tests/training/host_memory/chain.lua adam=(--model tests/training/host_memory/adam.lua)
none=(-D which=none -D state=false)
train() { timeout 120 "$PIANOLA" run $chain --json --compare --steps 4 "$@" 2>&1; }
field() { sed -nE "s/^ *\"$1\": \"?([^,\"]*)\"?,?$/\1/p"; }

variants=("which=all" "which=some" "which=some state=false" "which=none" "recompute=true" "split=true" "apart=true"
    "which=some recompute=true split=true apart=true")
wanted=$(field weights < <(train "${adam[@]}" "${none[@]}"))
expect "a run without offload has weights" 16 ${#wanted}
for variant in "${variants[@]}"; do
    read -ra set <<<"$variant"
    got=$(train "${adam[@]}" "${set[@]/#/-D}" --device cuda)
    plan=$("$PIANOLA" show $chain "${adam[@]}" "${set[@]/#/-D}" --json | field host_bytes | awk '{ n += $1 } END { print n }')
    expect "$variant: bytes of host memory, reported, planned and taken" "$plan $plan $plan" \
        "$plan $(field host_bytes_planned <<<"$got") $(field host_bytes_taken <<<"$got")"
done
# With bf16, the optimizer state includes the fp32 masters.
bf16=(-D precision=bf16 --device cuda)
masters=$(field weights < <(train "${adam[@]}" "${bf16[@]}" "${none[@]}"))

# The timeline shows the copies on their lanes.
"$PIANOLA" run $chain "${adam[@]}" --steps 1 --json --timeline "$room/timeline" >/dev/null 2>&1
expect "copies in a measured timeline" "32 offload OFFLOAD_S 32 reload RELOAD_S 3 offload OFFLOAD_O 3 reload RELOAD_O" \
    "$(for op in OFFLOAD_S RELOAD_S OFFLOAD_O RELOAD_O; do
        cut -f 3,6 "$room/timeline" | grep -P "\t$op$" | sort | uniq -c | tr -s ' \t' ' '; done | tr -d '\n' | sed 's/^ //')"

# ---- ranks as processes ----

built_as() { compiled "$1" "../${chain%.lua}" "${adam[@]}" "${@:2}"; } # NAME ARGS...
built_as host
built_as plain "${none[@]}"
built_as apart -D which=some -D recompute=true -D split=true -D apart=true
over_mpi() { # NAME FLAGS...
    timeout 120 mpirun --oversubscribe -n 4 "$room/$1/rank$suffix" --flight "$room" "${@:2}" >"$room/said" 2>&1
    sed -n 's/^weights *\([0-9a-f]*\).*/\1/p' "$room/said" | grep . || grep -m 3 -E 'standin|error|pianola: rank' "$room/said"
}
# moved FROM TO: trains 4 steps, 2 in each.
moved() {
    rm -rf "$saved"
    over_mpi "$1" --steps 2 --checkpoint "$saved" >/dev/null
    over_mpi "$2" --steps 4 --checkpoint "$saved" --resume
}
expect "state from host memory to the device" "$wanted" "$(moved host plain)"
expect "state from the device to host memory" "$wanted" "$(moved plain host)"
expect "state in host memory before and after" "$wanted" "$(moved host apart)"

suffix=.gpu
over_mpi host --steps 4 >/dev/null
most=$("$PIANOLA" show $chain "${adam[@]}" --json | field host_bytes | sort -n | tail -n 1)
expect "a rank's host memory" "pianola: pinned host memory of a rank, at most: planned $most bytes, taken $most" \
    "$(grep '^pianola: pinned' "$room/said")"
expect "with GPUs, state from host memory to the device" "$wanted" "$(moved host plain)"
expect "with GPUs, state from the device to host memory" "$wanted" "$(moved plain host)"
built_as host16 -D precision=bf16
built_as plain16 -D precision=bf16 "${none[@]}"
expect "masters from host memory to the device" "$masters" "$(moved host16 plain16)"
expect "masters from the device to host memory" "$masters" "$(moved plain16 host16)"
finish
