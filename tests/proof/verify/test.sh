#!/usr/bin/env bash
# Handwritten programs in their text form, and the exact output of `pianola verify` for each.
#
#   tests/proof/verify/test.sh          checks
#   BLESS=1 tests/proof/verify/test.sh  rewrites the expected output; the exit code is never blessed
#
# tests/proof/verify/proved_*.txt must exit with 0, refuted_*.txt with 1, unreadable_*.txt with 2; NAME.expected has the
# whole output. The orders of refuted_serial_two_ranks, _looped and _one_lane_looped hang published frameworks
# (pytorch#172668): a receive moves before the compute that precedes it, so that both ranks block in a send.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
PIANOLA=$(realpath "$PIANOLA") || exit 2
cd tests/proof/verify || exit 2

for file in *.txt; do
    name=${file%.txt}
    case $name in
    proved_*) code=0 ;;
    refuted_*) code=1 ;;
    *) code=2 ;;
    esac
    got=$(timeout 60 "$PIANOLA" verify "$file" 2>&1 </dev/null)
    expect "$file: exit code" $code $?
    [ -z "$BLESS" ] || echo "$got" >"$name.expected"
    expect "$file" "$(cat "$name.expected" 2>&1)" "$got"
done
finish
