#!/usr/bin/env bash
# The replay under ThreadSanitizer: the message's flag must order every tensor that one rank's thread copies out of
# another's arena. So a missing wait or flag shows as a data race on the bytes. Build it first: make tsan.
cd "$(dirname "$0")/../../.." || exit 2
PIANOLA=${TSAN_PIANOLA:-build/tsan/pianola}
. tests/support/lib.sh
integers="--model schedules/models/integers.lua --json"
export TSAN_OPTIONS="exitcode=66 ${TSAN_OPTIONS:-}"

train() {
    # shellcheck disable=SC2086
    "$PIANOLA" run "$@" $integers --compare 2>&1 | grep -E 'same_weights|WARNING|SUMMARY' | sort -u | tr -d ' ,'
}
# Prints the weights, and ThreadSanitizer's warnings.
weights() {
    # shellcheck disable=SC2086
    "$1" run "${@:2}" $integers --steps 20 2>&1 | grep -E '"weights"|WARNING|SUMMARY' | sort -u
}
for schedule in schedules/*.lua; do
    if several_updates "$schedule"; then
        expect "$schedule under ThreadSanitizer" "$(weights build/pianola "$schedule")" "$(weights "$PIANOLA" "$schedule")"
        continue
    fi
    expect "$schedule under ThreadSanitizer" '"one_rank_same_weights":true' "$(train "$schedule" --steps 20)"
done
for ((seed = 1, trained = 0; trained < 4 && seed < 50; seed++)); do # some deadlock because of their cap
    "$PIANOLA" check tests/papers/formulas/random.lua -D costs=false -D seed=$seed >/dev/null 2>&1 || continue
    trained=$((trained + 1))
    expect "random schedule $seed under ThreadSanitizer" '"one_rank_same_weights":true' \
        "$(train tests/papers/formulas/random.lua -D costs=false -D seed=$seed --steps 20)"
done
expect "random schedules trained" 4 "$trained"
finish
