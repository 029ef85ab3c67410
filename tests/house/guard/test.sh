#!/usr/bin/env bash
# Proves that tests/run reports every kind of failure: runs each program of tests/house/guard/ in the build that must
# catch it.
set -u
cd "$(dirname "$0")/../../.."
. tests/support/environment.sh
passed=0 failed=0

# expect SUM SUITE: tests/run on the suite must end with that summary and its exit status.
expect() {
    local sum=$1 want=1 got status=0
    [[ $sum != *" 0 failed" ]] || want=0
    got=$(tests/run "$2" 2>&1) || status=$?
    if [ "$(tail -n 1 <<<"$got")" = "$sum" ] && [ "$status" = "$want" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'tests/run %s: expected "%s" and exit %d, got exit %d and:\n%s\n' "$2" "$sum" $want $status "$got"
    fi
}

for build in build build/asan; do
    expect "2 passed, 0 failed" $build/tests/house/guard/fine
    expect "0 passed, 2 failed" $build/tests/house/guard/exit0
    expect "1 passed, 1 failed" $build/tests/house/guard/assertion
    expect "0 passed, 1 failed" $build/tests/house/guard/empty
done
expect "0 passed, 1 failed" build/asan/tests/house/guard/leak
expect "0 passed, 1 failed" build/asan/tests/house/guard/overflow
expect "0 passed, 1 failed" build/asan/tests/house/guard/undefined
expect "0 passed, 1 failed" build/tests/house/guard/not_there
echo "$passed passed, $failed failed"
[ $failed = 0 ]
