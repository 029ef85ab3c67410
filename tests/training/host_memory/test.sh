#!/usr/bin/env bash
# Stashes and optimizer state in host memory do not change one bit of the training. In one process, over MPI, and on the
# CUDA stand-in in one process and in several. Ranks take the planned bytes of host memory. Checkpoints move from runs
# with state there to runs without, and back.
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
verdict() { echo "$(field one_rank_same_weights <<<"$1") $(field weights <<<"$1" | head -n 1) $(grep -m 1 -E '^standin|error' <<<"$1")"; }

variants=("which=all" "which=some" "which=some state=false" "which=none" "recompute=true" "split=true" "apart=true"
    "which=some recompute=true split=true apart=true")
wanted=$(field weights < <(train "${adam[@]}" "${none[@]}"))
expect "a run without offload has weights" 16 ${#wanted}
for variant in "${variants[@]}"; do
    read -ra set <<<"$variant"
    got=$(train "${adam[@]}" "${set[@]/#/-D}")
    expect "$variant: weights of one rank that keeps all" "true $wanted " "$(verdict "$got")"
    got=$(train "${adam[@]}" "${set[@]/#/-D}" --device cuda)
    expect "$variant, on the stand-in" "true $wanted " "$(verdict "$got")"
    plan=$("$PIANOLA" show $chain "${adam[@]}" "${set[@]/#/-D}" --json | field host_bytes | awk '{ n += $1 } END { print n }')
    expect "$variant: bytes of host memory, reported, planned and taken" "$plan $plan $plan" \
        "$plan $(field host_bytes_planned <<<"$got") $(field host_bytes_taken <<<"$got")"
    got=$(train "${adam[@]}" "${set[@]/#/-D}" --device cuda --no-graph)
    expect "$variant, without a graph" "true $wanted " "$(verdict "$got")"
done
# Runs copies and layers in other orders, which exposes a missing wait.
for seed in 0 2 3; do
    expect "streams in another order, $seed" "true $wanted " "$(STANDIN_SEED=$seed verdict "$(train "${adam[@]}" --device cuda)")"
done
# With bf16, the optimizer state includes the fp32 masters.
bf16=(-D precision=bf16 --device cuda)
masters=$(field weights < <(train "${adam[@]}" "${bf16[@]}" "${none[@]}"))
expect "bf16, masters in host memory" "true $masters " "$(verdict "$(train "${adam[@]}" "${bf16[@]}")")"

# The timeline shows the copies on their lanes.
"$PIANOLA" run $chain "${adam[@]}" --steps 1 --json --timeline "$room/timeline" >/dev/null 2>&1
expect "copies in a measured timeline" "32 offload OFFLOAD_S 32 reload RELOAD_S 3 offload OFFLOAD_O 3 reload RELOAD_O" \
    "$(for op in OFFLOAD_S RELOAD_S OFFLOAD_O RELOAD_O; do
        cut -f 3,6 "$room/timeline" | grep -P "\t$op$" | sort | uniq -c | tr -s ' \t' ' '; done | tr -d '\n' | sed 's/^ //')"

# ---- ranks as processes ----

built_as() { # NAME SUFFIX ARGS...
    "$PIANOLA" compile $chain "${adam[@]}" "${@:3}" -o "$room/$1" && make -s -C "$room/$1" ${2:+gpu} || exit 2
}
built_as host "" && built_as plain "" "${none[@]}"
apart=(-D which=some -D recompute=true -D split=true -D apart=true)
built_as apart "" "${apart[@]}"
over_mpi() { # NAME FLAGS...
    timeout 120 mpirun --oversubscribe -n 4 "$room/$1/rank$suffix" --flight "$room" "${@:2}" >"$room/said" 2>&1
    sed -n 's/^weights *\([0-9a-f]*\).*/\1/p' "$room/said" | grep . || grep -m 3 -E 'standin|error|pianola: rank' "$room/said"
}
for name in host apart; do
    expect "$name over MPI" "$wanted" "$(over_mpi $name --steps 4)"
done
tcp host 4 --steps 4
ended 60
expect "over TCP" "0 0 0 0 $wanted" "$codes $(weights)"
# moved FROM TO: trains 4 steps, 2 in each.
moved() {
    rm -rf "$saved"
    over_mpi "$1" --steps 2 --checkpoint "$saved" >/dev/null
    over_mpi "$2" --steps 4 --checkpoint "$saved" --resume
}
expect "state from host memory to the device" "$wanted" "$(moved host plain)"
expect "state from the device to host memory" "$wanted" "$(moved plain host)"
expect "state in host memory, and again" "$wanted" "$(moved host apart)"

export PKG_CONFIG_PATH=$built/standin:$PKG_CONFIG_PATH
suffix=.gpu
built_as host gpu && built_as plain gpu "${none[@]}" && built_as apart gpu "${apart[@]}"
for flags in "" "--messages put" "--no-graph" "--reduce ordered"; do
    # shellcheck disable=SC2086
    expect "with GPUs $flags" "$wanted" "$(over_mpi host --steps 4 $flags)"
done
most=$("$PIANOLA" show $chain "${adam[@]}" --json | field host_bytes | sort -n | tail -n 1)
expect "a rank's host memory" "pianola: pinned host memory of a rank, at most: planned $most bytes, taken $most" \
    "$(grep '^pianola: pinned' "$room/said")"
expect "jobs of a stage on two ranks with GPUs" "$wanted" "$(over_mpi apart --steps 4)"
expect "with GPUs, state from host memory to the device" "$wanted" "$(moved host plain)"
expect "with GPUs, state from the device to host memory" "$wanted" "$(moved plain host)"
built_as host16 gpu -D precision=bf16 && built_as plain16 gpu -D precision=bf16 "${none[@]}"
expect "bf16 with GPUs" "$masters" "$(over_mpi host16 --steps 4)"
expect "masters from host memory to the device" "$masters" "$(moved host16 plain16)"
expect "masters from the device to host memory" "$masters" "$(moved plain16 host16)"
finish
