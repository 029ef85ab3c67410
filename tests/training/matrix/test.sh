#!/usr/bin/env bash
# Rows of the matrix with all ranks in one process, on the CPU: tests/training/matrix/README.md.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/environment.sh
exec tests/training/matrix/run.py --transport one
