#!/usr/bin/env bash
# Checks the page: first its compiler against the native one, file by file; then the page itself in a real browser, used
# as a person would, with screenshots in build/page/.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/environment.sh
passed=0 failed=0
for suite in "node tests/pictures/live_page/same.js build/pianola 150" "python3 tests/pictures/live_page/use.py build/pianola.html build/page"; do
    # shellcheck disable=SC2086
    log=$(timeout -k 5 600 $suite 2>&1)
    echo "$log" | sed '$d'
    if [[ $(tail -n 1 <<<"$log") =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed ]]; then
        ((passed += BASH_REMATCH[1], failed += BASH_REMATCH[2]))
    else
        tail -n 1 <<<"$log"
        ((failed++))
    fi
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
