#!/usr/bin/env bash
# The replay under ThreadSanitizer: every tensor that one rank's thread copies out of another's arena must be ordered by
# the message's flag, so a missing wait or flag shows as a data race on the bytes. Build it first: make tsan.
cd "$(dirname "$0")/../.." || exit 2
PIANOLA=${TSAN_PIANOLA:-build/tsan/pianola}
. tests/support/lib.sh
integers="--model schedules/models/integers.lua --compare --json"
export TSAN_OPTIONS="exitcode=66 ${TSAN_OPTIONS:-}"

train() {
    # shellcheck disable=SC2086
    "$PIANOLA" run "$@" $integers 2>&1 | grep -E 'same_weights|WARNING|SUMMARY' | sort -u | tr -d ' ,'
}
repeated() { # its updates are jobs, and most of a step is repetitions
    "$PIANOLA" run "$1" --model schedules/models/integers.lua -D rows=16 -D width=32 -D batches=96 --steps 5 --json 2>&1 |
        grep -E '"steps"|WARNING|SUMMARY' | sort -u | tr -d ' ,'
}
for schedule in schedules/*.lua; do
    if flushes "$schedule"; then
        expect "$schedule under ThreadSanitizer" '"one_rank_same_weights":true' "$(train "$schedule" --steps 20)"
    else
        expect "$schedule under ThreadSanitizer" '"steps":5' "$(repeated "$schedule")"
    fi
done
for ((seed = 1, trained = 0; trained < 4 && seed < 50; seed++)); do # some deadlock by their cap
    "$PIANOLA" check tests/schedules/random.lua -D seed=$seed >/dev/null 2>&1 || continue
    trained=$((trained + 1))
    expect "random schedule $seed under ThreadSanitizer" '"one_rank_same_weights":true' \
        "$(train tests/schedules/random.lua -D seed=$seed --steps 20)"
done
expect "random schedules trained" 4 "$trained"
finish
