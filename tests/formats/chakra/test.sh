#!/usr/bin/env bash
# Decodes `show --format chakra` with protobuf's own library, and simulates the traces (chakra.py). `make test` installs
# the library.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/environment.sh
[ -e build/traces/installed ] || { echo "build/traces is not there: make build/traces/installed"; exit 2; }
PYTHONPATH=build/traces exec python3 tests/formats/chakra/chakra.py "${PIANOLA:-build/pianola}"
