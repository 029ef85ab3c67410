#!/usr/bin/env bash
# Rows of the matrix with a process per rank, over TCP and MPI: tests/training/matrix/README.md.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/environment.sh
exec tests/training/matrix/run.py --transport tcp mpi
