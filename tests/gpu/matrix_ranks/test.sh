#!/usr/bin/env bash
# Rows of the matrix with a process and a stand-in for a GPU per rank: tests/training/matrix/README.md.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/environment.sh
exec tests/training/matrix/run.py --transport nccl nccl-mpi nccl-eager ordered put put-eager
