#!/usr/bin/env bash
# Traces for Holistic Trace Analysis and for Perfetto, read by these themselves (readers.py). `make test` installs them.
cd "$(dirname "$0")/../.." || exit 2
. tests/support/environment.sh
[ -e build/traces/installed ] || { echo "build/traces is not there: make build/traces/installed"; exit 2; }
PYTHONPATH=build/traces exec python3 tests/traces/readers.py "${PIANOLA:-build/pianola}"
