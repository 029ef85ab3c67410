#!/usr/bin/env bash
# The real command under AddressSanitizer and UndefinedBehaviorSanitizer: known figures, golden files, and training.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/environment.sh
export PIANOLA=${ASAN_PIANOLA:-build/asan/pianola} CASES=10 GPT_STEPS=2
total_passed=0 total_failed=0
for suite in papers/figures passes/golden cli/mistakes cli/compare training/consistency; do
    log=$(tests/$suite/test.sh 2>&1)
    read -r passed failed < <(tail -n 1 <<<"$log" | sed -nE 's/^([0-9]+) passed, ([0-9]+) failed$/\1 \2/p')
    total_passed=$((total_passed + ${passed:-0})) total_failed=$((total_failed + ${failed:-1}))
    [ "${failed:-1}" = 0 ] || echo "$log"
done
echo "$total_passed passed, $total_failed failed"
[ $total_failed = 0 ]
