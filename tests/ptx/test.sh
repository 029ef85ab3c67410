#!/usr/bin/env bash
# The PTX that nvcc makes of the kernels, run on the CPU by an executor of its own, against float64 formulas. It asserts
# alignment and bounds of every access, no read of what nobody wrote, no race between barriers, that all threads reach
# a barrier, and that the lanes that a mask names are there. suite.py says more. Needs nvcc, and Python with numpy.
cd "$(dirname "$0")/../.." || exit 2
. tests/support/lib.sh
NVCC=${NVCC:-${CUDA_HOME:-/usr/local/cuda}/bin/nvcc} PYTHON=${PYTHON:-python3}
skip() {
    echo "$1 is not there: no kernel ran"
    expect "skipped" "" ""
    finish
}
[ -x "$NVCC" ] || skip nvcc
"$PYTHON" -c 'import numpy' 2>/dev/null || skip "numpy, which make deps installs,"
export OPENBLAS_NUM_THREADS=1
exec "$PYTHON" -B tests/ptx/suite.py "$NVCC"
