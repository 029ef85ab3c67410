#!/usr/bin/env bash
# The real command under AddressSanitizer and UndefinedBehaviorSanitizer: known figures, golden files, and training.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/environment.sh
export PIANOLA=${ASAN_PIANOLA:-build/asan/pianola} CASES=10
ln -sfn ../schedules build/schedules # where a program in build/asan looks for them
total_passed=0 total_failed=0
matrix="training/matrix/run.py --transport one --only integers gpt llama several-updates"
for suite in papers/figures/test.sh passes/golden/test.sh cli/mistakes/test.sh cli/compare/test.sh "$matrix"; do
    # shellcheck disable=SC2086
    log=$(tests/$suite 2>&1)
    read -r passed failed < <(tail -n 1 <<<"$log" | sed -nE 's/^([0-9]+) passed, ([0-9]+) failed$/\1 \2/p')
    total_passed=$((total_passed + ${passed:-0})) total_failed=$((total_failed + ${failed:-1}))
    [ "${failed:-1}" = 0 ] || echo "$log"
done
echo "$total_passed passed, $total_failed failed"
[ $total_failed = 0 ]
