#!/usr/bin/env bash
# Runs the kernels' PTX, as nvcc makes it, in an executor on the CPU and compares with float64 formulas. The executor
# asserts that every access is aligned and within bounds, that nothing unwritten is read, and that no race occurs
# between barriers. It also asserts that all threads reach a barrier, and that the lanes in a mask exist. suite.py says
# more. Needs nvcc, and Python with numpy.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
NVCC=${NVCC:-${CUDA_HOME:-/usr/local/cuda}/bin/nvcc}
if [ ! -x "$NVCC" ]; then
    echo "nvcc is not there: no kernel ran"
    expect "skipped" "" ""
    finish
fi
export OPENBLAS_NUM_THREADS=1
for python in ${PYTHON:-python3 /usr/bin/python3}; do # make deps installs numpy for the second
    "$python" -c 'import numpy' 2>/dev/null && exec "$python" -B tests/gpu/ptx/suite.py "$NVCC"
done
echo "Python has no numpy: make deps installs it"
expect "numpy" "there" "missing"
finish
