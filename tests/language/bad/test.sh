#!/usr/bin/env bash
# Every mistake in tests/language/bad/*.lua must exit with 2 and print exactly the message in NAME.expected. With
# --json, it must also print the error as JSON.
#
#   PIANOLA=build/pianola tests/language/bad/test.sh          checks
#   BLESS=1 PIANOLA=build/pianola tests/language/bad/test.sh  rewrites the expected messages
#
# `pianola check` reads each file as its schedule, in the folder tests/language/bad. A first line `-- args: …` adds
# arguments. If these contain FILE, it is replaced by the file itself, and the schedule is one of the arguments.
. "$(dirname "$0")/../../support/environment.sh"
PIANOLA=$(realpath "${PIANOLA:-build/pianola}") || exit 2
cd "$(dirname "$0")" || exit 2
room=$(mktemp -d) || exit 2
trap 'rm -rf "$room"' EXIT
got=$room/got passed=0 failed=0 printed=()

for file in *.lua; do
  name=${file%.lua}
  args=$(sed -n '1s/^-- args: //p' "$file")
  case $args in
  *FILE*) args=$(echo "$args" | sed "s/FILE/$file/") ;;
  *.lua*-*) ;;
  *) args="$file $args" ;;
  esac
  # Splits the arguments at blanks.
  # shellcheck disable=SC2086
  timeout 60 "$PIANOLA" check $args >/dev/null 2>"$got" </dev/null
  code=$?
  # shellcheck disable=SC2086
  timeout 60 "$PIANOLA" check $args --json >"$room/$name.json" 2>/dev/null </dev/null
  printed+=(error "$room/$name.json")
  [ -z "$BLESS" ] || cp "$got" "$name.expected"
  if [ $code -ne 2 ]; then
    echo "FAIL $name: exit code $code instead of 2"
  elif ! difference=$(diff -u --label "$name.expected" "$name.expected" --label got "$got" 2>&1); then
    echo "FAIL $name:"
    echo "$difference"
  else
    passed=$((passed + 1))
    continue
  fi
  failed=$((failed + 1))
done
if said=$(/usr/bin/python3 ../../formats/json/valid.py "${printed[@]}" 2>&1); then
  passed=$((passed + 1))
else
  failed=$((failed + 1))
  echo "FAIL as JSON: $said" | head -n 20
fi
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
