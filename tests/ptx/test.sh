#!/usr/bin/env bash
# The PTX that nvcc makes of the kernels, run on the CPU by an executor of its own, against float64 formulas. It asserts
# alignment and bounds of every access, no read of what nobody wrote, no race between barriers, that all threads reach
# a barrier, and that the lanes that a mask names are there. suite.py says more. Needs nvcc, and Python with numpy.
cd "$(dirname "$0")/../.." || exit 2
. tests/support/lib.sh
NVCC=${NVCC:-${CUDA_HOME:-/usr/local/cuda}/bin/nvcc}
if [ ! -x "$NVCC" ]; then
    echo "nvcc is not there: no kernel ran"
    expect "skipped" "" ""
    finish
fi
export OPENBLAS_NUM_THREADS=1
for python in ${PYTHON:-python3 /usr/bin/python3}; do # the second is the one that make deps gives numpy to
    "$python" -c 'import numpy' 2>/dev/null && exec "$python" -B tests/ptx/suite.py "$NVCC"
done
echo "Python has no numpy: make deps installs it"
expect "numpy" "there" "missing"
finish
