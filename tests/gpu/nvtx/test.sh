#!/usr/bin/env bash
# Ranges for profilers, recorded with NVIDIA's header and our own profiler. On the stand-in GPU, every instruction of a
# step opens a range with its name when it is enqueued and when it is captured, and every range is closed.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
include=${CUDA_HOME:-/usr/local/cuda}/include
[ -f "$include/nvtx3/nvToolsExt.h" ] || { echo "nvtx3 is not here: ranges were compiled out"; finish; }
export PIANOLA_CUDA=$PWD/build/standin/libpianola-cuda.so
room=$(mktemp -d) || exit 2
trap 'rm -rf "$room"' EXIT

gcc -std=c11 -Wall -Wextra -Werror -fPIC -shared -isystem "$include" -o "$room/attached.so" tests/gpu/nvtx/attached.c || exit 1
run=(run schedules/fslpp.lua --model schedules/models/integers.lua -D batches=4 --json --device cuda)
NVTX_INJECTION64_PATH=$room/attached.so NVTX_RANGES=$room/ranges timeout 100 "$PIANOLA" "${run[@]}" --steps 2 >/dev/null 2>&1
expect "exit" 0 $?
expect "the domain" "domain Pianola" "$(head -n 1 "$room/ranges")"
expect "ranges within ranges" 0 "$(grep -c '^[1-9]' "$room/ranges")"

# Prints the names of the program's instructions, from its timeline.
"$PIANOLA" show schedules/fslpp.lua --model schedules/models/integers.lua -D batches=4 --format tsv | awk -F '\t' '
    NR == 1 { next }
    $5 ~ /^[FRIBW]$/ { print $6 $5 $7; next }
    { name = $5 " " $6
      if ($7 != "") name = name " " $7
      if ($8 != "") name = name ($2 ~ /^send/ ? " to " : " from ") $8
      print name }' | sort -u >"$room/wanted"
expect "names" "" "$(sed -nE 's/^[0-9]+ //p' "$room/ranges" | sort -u | diff "$room/wanted" - | head -n 5)"
# Jobs, unlike messages, are never retried. The comparison with one rank has ranges of its own: 3 steps, one enqueued
# and two captured. The program has one step enqueued and one captured.
jobs=$(grep -cE '^[0-9]+[FRIBW][0-9]+$' "$room/wanted")
expect "ranges of jobs" $((jobs * (2 + 3))) "$(grep -cE '^0 [0-9]+[FRIBW][0-9]+$' "$room/ranges")"
finish
