"""Runs the kernels of runtime/, as nvcc compiles them, on the CPU: python3 tests/gpu/ptx/suite.py NVCC

Each file tests/gpu/ptx/test_<name>.py tests the kernels of <name>.cu. A kernel that no test runs is a failure.
"""
import importlib
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed

import check
from ptx_machine import executed


def run(stem, ptx, part):
    """Runs one part of a file's tests. Returns how many passed, what failed, the kernels, which of them ran, and the
    time."""
    begin = time.time()
    suite = check.Suite(stem, check.kernels_of(ptx))
    module = importlib.import_module('test_' + stem)
    getattr(module, part)(suite)
    names = {f'{stem}.cu: {k}' for k in suite.kernels}
    ran = {f'{stem}.cu: {k}': executed(suite.kernels[k]) for k in suite.used}
    return suite.passed, suite.failed, names, ran, f'{stem}, {part}: {time.time() - begin:.0f} s'


def main(nvcc):
    tasks, failed, passed, there, used = [], [], 0, set(), {}
    for path in check.sources():
        stem = os.path.basename(path)[:-3]
        if '<nccl.h>' in open(path).read() and not any(map(os.path.exists, check.nccl(nvcc))):
            print(f'nccl.h is not there: {stem}.cu is left out')
            continue
        if not os.path.exists(os.path.join(os.path.dirname(__file__), f'test_{stem}.py')):
            failed.append(f'{path}: no tests/gpu/ptx/test_{stem}.py')
            continue
        tasks.append((stem, path))
    tasks.sort(key=lambda task: task[0] != 'attention')  # it takes longest to compile and to run
    with ProcessPoolExecutor() as pool:
        compiled, results = {pool.submit(check.compile, path, nvcc): stem for stem, path in tasks}, []
        for ptx in as_completed(compiled):
            stem = compiled[ptx]
            parts = getattr(importlib.import_module('test_' + stem), 'PARTS', ['tests'])
            results += [pool.submit(run, stem, ptx.result(), part) for part in parts]
        for result in results:
            p, f, kernels, ran, seconds = result.result()
            passed, failed, there, used = passed + p, failed + f, there | kernels, used | ran
            if 'VERBOSE' in os.environ:
                print(seconds)
    for name in sorted(there - used.keys()):
        failed.append(f'{name}: no test runs this kernel')
    for line in failed:
        print(line)
    ours = {name: n for name, n in used.items() if not name.startswith('wrong.cu')}
    there = {name for name in there if not name.startswith('wrong.cu')}
    # most instructions that no thread reaches are unrolled loops over the last elements, of which there are too few
    print(f'{len(ours)} of {len(there)} kernels of runtime/ run, and of their {sum(n for _, n in ours.values())} '
          f'instructions {sum(n for n, _ in ours.values())}')
    print(f'{passed} passed, {len(failed)} failed')
    return 1 if failed or not passed else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1]))
