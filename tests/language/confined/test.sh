#!/usr/bin/env bash
# Every script in tests/language/confined tries to run forever, take all memory, crash the compiler or escape from its
# sandbox. Each must end with exit code 2 and a pianola error, within 2 s and 480 MiB.
#
# The sandbox limits scripts by counting, without a clock; this test checks that its counts track CPU seconds. On a
# machine that is too slow or busy for 2 s, a script may take 6 times as long as an empty loop (0.3 s on a fast one). A
# first line `-- args: …` works as in tests/language/bad/test.sh.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
PIANOLA=$(realpath "$PIANOLA") MEASURE=$(realpath "${MEASURE:-build/measure}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd tests/language/confined || exit 2
longest=0 largest=0

# check ARG...: prints the exit code of a check, its CPU time in ms and its memory in MiB.
check() { "$MEASURE" 100 "$PIANOLA" check "$@" 2>"$work/stderr" | tail -n 1; }
# is_quick MS: succeeds for at most 2 s, or 6 times as long as an empty loop.
is_quick() {
    local ms
    [ "$1" -le 2000 ] && return
    ms=$("$MEASURE" 100 "$PIANOLA" check - <<<'while true do end' 2>/dev/null | cut -f 2)
    [ "$1" -le $((6 * ms)) ]
}

for file in *.lua; do
    args=$(sed -n "1s/^-- args: \(.*\)FILE\(.*\)/..\/..\/schedules\/1f1b.lua \1$file\2/p" "$file")
    # Splits the arguments at blanks.
    # shellcheck disable=SC2086
    IFS=$'\t' read -r code cpu mib < <(check ${args:-$file} </dev/null)
    expect "$file: exit code" 2 "$code"
    expect "$file: a pianola error" yes \
        "$(tail -n 4 "$work/stderr" | grep -qE "^($file:[0-9]+|$file|pianola): error: ." && echo yes || tail -c 300 "$work/stderr")"
    expect "$file: CPU time of a counted script" yes "$(is_quick "$cpu" && echo yes || echo "$cpu ms")"
    expect "$file: memory at most 480 MiB" yes "$([ "$mib" -le 480 ] && echo yes || echo "$mib MiB")"
    [ -z "$VERBOSE" ] || printf '%-28s%6s ms%5s MiB  %s\n' "$file" "$cpu" "$mib" \
        "$(grep -m 1 'error: ' "$work/stderr" | cut -c 1-120)"
    longest=$((cpu > longest ? cpu : longest)) largest=$((mib > largest ? mib : largest))
done
echo "longest $longest ms, largest $largest MiB"
finish
