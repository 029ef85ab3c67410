#!/usr/bin/env bash
# The page in a real browser, used as a person does; screenshots in build/page/.
cd "$(dirname "$0")/../.." || exit 2
timeout -k 5 600 python3 tests/page/use.py build/pianola.html build/page
