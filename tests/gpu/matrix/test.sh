#!/usr/bin/env bash
# Rows of the matrix on the stand-in for CUDA, all ranks in one process: tests/training/matrix/README.md.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/environment.sh
exec tests/training/matrix/run.py --transport cuda cuda-eager threads
