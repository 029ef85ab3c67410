#!/usr/bin/env bash
# Random schedules are proved, read back from their text form, and train to the bits of one rank (tests/proof/property).
# Then proves that this check can fail: a fault inserted into the compiled program, before or after the proof, is found
# and shrunk.
#
#   CASES=100000 tests/proof/property/test.sh      more cases, about 5 ms each
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
PROPERTY=${PROPERTY:-build/property}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if "$PROPERTY" -n "${CASES:-3500}" >"$work/log" 2>&1; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
cat "$work/log"

"$PROPERTY" -n "${CASES:-1000}" -s 100000 -w 64 >"$work/wide" 2>&1
expect "gradients in many pieces" 0 $?
cat "$work/wide"

"$PROPERTY" -n "${CASES:-1000}" -D precision=bf16 >"$work/bf16" 2>&1
expect "random schedules of a bf16 model are proved" 0 $?
cat "$work/bf16"

# Names in the text form: broadcasts of several versions, and parts of a tied table in rounds.
"$PROPERTY" -n "${CASES:-700}" -D updates=true -D apart=true >"$work/updates" 2>&1
expect "random schedules with updates are proved" 0 $?
cat "$work/updates"
gpt=(-m schedules/models/gpt.lua -w 16 -D layers=6 -D heads=4 -D context=8 -D rows=1)
"$PROPERTY" -n "${CASES:-400}" "${gpt[@]}" >"$work/gpt" 2>&1
expect "random schedules of a GPT are proved" 0 $?
cat "$work/gpt"
"$PROPERTY" -n "${CASES:-400}" "${gpt[@]}" -D tied=true -D rounds=true -D updates=false -D teams=false >"$work/tied" 2>&1
expect "random schedules of a tied GPT are proved" 0 $?
cat "$work/tied"

# find FAULT HOW WORKERS STAGES BATCHES: expects this size of the smallest schedule that shows the fault.
find_fault() {
    PIANOLA_FAULT=$1 "$PROPERTY" -j 1 -n 100 -D teams=false -D updates=false -D slices=1 >"$work/$1" 2>"$work/stderr"
    expect "a broken program ($1): exit code" 1 $?
    expect "a broken program ($1): the kind of failure" yes "$(grep -q "^seed .* $2\$" "$work/$1" && echo yes || head -3 "$work/$1")"
    expect "a broken program ($1): the smallest schedule" "$3 workers, $4 stages, $5 batches" \
        "$(sed -n 's/^smallest .* so: \(.*\), [0-9]* jobs$/\1/p' "$work/$1")"
    expect "a broken program ($1): its scripts reproduce it" 0 "$(grep -c 'do NOT fail' "$work/$1")"
    # The output is a shell script. The real command has no such fault, so there the schedule trains correctly.
    (cd "$work" && sed -n '/^cat /,/^EOF$/p' "$1" | sh)
    expect "a broken program ($1): the scripts printed compile" "failing: proved" \
        "$("$PIANOLA" check "$work/failing.lua" 2>&1 | grep -o '^failing: proved')"
}
find_fault first 'trains otherwise' 1 1 2
find_fault wait 'does not verify' 2 1 1
find_fault name 'does not read back' 1 1 1
finish
