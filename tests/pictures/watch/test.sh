#!/usr/bin/env bash
# Checks `show --watch`: its errors and, in a pseudo-terminal, what it draws, when, and how it leaves.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
S=schedules/1f1b.lua
refused() { expect "$*" "$1" "$("$PIANOLA" show "${@:2}" --watch 2>&1 >/dev/null </dev/null | sed 's/^pianola: error: //')"; }
refused "--watch draws in a terminal, and stdout is not one" $S
alone="--watch redraws the grid of a prediction: it cannot be combined with --format, --json, --output, --measured, --dump"
for option in "--format svg" "--json" "-o $room/x" "--measured $room/x" "-dl"; do
    refused "$alone" $S $option
done
expect "compare takes no --watch" "\`compare\` takes no --watch; see \`pianola help compare\`" \
    "$("$PIANOLA" compare $S --watch 2>&1 | sed 's/^pianola: error: //')"
in_terminal() { script -qec "$PIANOLA show $* --watch" /dev/null </dev/null | tr -d '\r' | sed 's/^pianola: error: //'; }
expect "stdin" "-: stdin cannot be watched; name a file" "$(in_terminal -)"
expect "a missing folder" "$room/none: cannot be watched: No such file or directory" "$(in_terminal "$room/none/x.lua")"
python3 tests/pictures/watch/watch.py "$PIANOLA" "$room" >"$room/log" 2>&1
sed '$d' "$room/log"
if [[ $(tail -n 1 "$room/log") =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]]; then
    ((passed += BASH_REMATCH[1], failed += BASH_REMATCH[2]))
else
    tail -n 1 "$room/log"
    ((failed++))
fi
finish
