#!/usr/bin/env bash
# Reads traces with Holistic Trace Analysis and Perfetto themselves (readers.py). `make test` installs them.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/environment.sh
[ -e build/traces/installed ] || { echo "build/traces is not there: make build/traces/installed"; exit 2; }
PYTHONPATH=build/traces exec python3 tests/formats/traces/readers.py "${PIANOLA:-build/pianola}"
