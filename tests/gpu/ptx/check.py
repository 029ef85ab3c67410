"""Shared by the kernels' tests: the list of kernels, data in a precision, comparison, and results."""
import hashlib
import os
import re
import subprocess
import traceback

import numpy as np

import ptx_text
from ptx_machine import launch
from ptx_memory import Device, Wrong  # Device: for the tests
from ptx_text import Unknown

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), '..', '..', '..'))
PRECISIONS = {'float': 4, '__nv_bfloat16': 2}


# ---- kernels ----

def sources():
    """Yields the .cu files of runtime/ that have kernels, and wrong.cu."""
    yield os.path.join(ROOT, 'tests', 'gpu', 'ptx', 'wrong.cu')
    for folder, _, names in sorted(os.walk(os.path.join(ROOT, 'runtime'))):
        for name in sorted(names):
            path = os.path.join(folder, name)
            if name.endswith('.cu') and '__global__' in open(path).read():
                yield path


def nccl(nvcc):
    """Returns the paths where NCCL's header may be, as in the Makefile."""
    folders = os.path.join(os.path.dirname(os.path.dirname(nvcc)), 'include'), '/usr/include', '/usr/local/include'
    return [os.path.join(folder, 'nccl.h') for folder in folders]


def compile(path, nvcc):
    """Returns the PTX of a file. It is cached under a hash of everything that it may depend on, since attention.cu
    takes half a minute."""
    parts = [subprocess.run([nvcc, '--version'], capture_output=True, text=True, check=True).stdout, open(path).read()]
    for folder, _, names in sorted(os.walk(os.path.join(ROOT, 'runtime'))):
        parts += [open(os.path.join(folder, n)).read() for n in sorted(names) if n.endswith(('.h', '.cuh'))]
    room = os.path.join(ROOT, 'build', 'ptx')
    os.makedirs(room, exist_ok=True)
    stem = os.path.basename(path)[:-3]
    out = os.path.join(room, f'{stem}.{hashlib.sha256("".join(parts).encode()).hexdigest()[:16]}.ptx')
    if not os.path.exists(out):
        for old in os.listdir(room):
            if old.startswith(stem + '.'):
                os.remove(os.path.join(room, old))
        # the Makefile compiles for compute_80, too
        subprocess.run([nvcc, '-ptx', '-arch=compute_80', '-std=c++17', '-O3', '-I' + os.path.join(ROOT, 'runtime'),
                        '-o', out + '.new', path], check=True)
        os.rename(out + '.new', out)
    return out


def kernels_of(ptx):
    """Returns a file's kernels by their names in the source: `map<float, relu>`."""
    kernels = ptx_text.read(ptx)
    names = subprocess.run(['c++filt'], input='\n'.join(kernels), capture_output=True, text=True, check=True).stdout
    out = {}
    for kernel, name in zip(kernels.values(), names.split('\n')):
        name = re.sub(r'&?_INTERNAL_\w+::', '', name)
        out[re.sub(r'^void ', '', name).split('(')[0]] = kernel
    return out


# ---- results ----

class Suite:
    """Runs one file's tests. used: kernels that a test ran."""

    def __init__(self, stem, kernels):
        self.stem, self.kernels, self.used, self.passed, self.failed = stem, kernels, set(), 0, []

    def test(self, what, function, *arguments):
        """Runs one test: function(suite, *arguments) raises what is wrong."""
        try:
            function(self, *arguments)
            self.passed += 1
        except (Wrong, Unknown, AssertionError, KeyError) as why:
            text = str(why) if not isinstance(why, KeyError) else f'no kernel {why}'
            if not text:
                text = traceback.format_exc()
            self.failed.append(f'{self.stem}: {what}: {text}')

    def run(self, name, device, grid, block, arguments, shared=0):
        kernel = self.kernels[name]
        self.used.add(name)
        launch(kernel, device, grid, block, arguments, shared)


def without_barriers(suite, name, needed, function, *arguments):
    """Removes the kernel's barriers and its waits for copies, one at a time, and runs function(suite, *arguments).
    Without a barrier it must find a race, without a wait a copy that was not awaited. needed: the number of
    barriers, all of which are needed."""
    kernel = suite.kernels[name]
    barriers = [line for line, text in kernel.statements if text.startswith('bar.sync')]
    waits = [line for line, text in kernel.statements if text.startswith('cp.async.wait_group')]
    assert len(barriers) == needed, f'{len(barriers)} barriers'
    for line in barriers + waits:
        without = ptx_text.Kernel(name, kernel.path, kernel.variables)
        without.params, without.params_bytes = kernel.params, kernel.params_bytes
        without.statements = [s for s in kernel.statements if s[0] != line]
        try:
            function(Suite(suite.stem, {name: without}), *arguments)
            found = ''
        except Wrong as why:
            found = str(why)
        assert found.startswith('race' if line in barriers else 'shared memory that an asynchronous copy'), \
            f'without line {line}: {found or "nothing was found"}'


# ---- data ----

def to_bf16(x):
    """Returns the bits of x rounded to nearest even; finite numbers only."""
    u = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((u + (0x7FFF + (u >> 16 & 1))) >> 16).astype(np.uint16)


def encode(x, T):
    return np.ascontiguousarray(x, np.float32) if T == 'float' else to_bf16(x)


def decode(x):
    if x.dtype == np.uint16:
        x = (x.astype(np.uint32) << 16).view(np.float32)
    return x.astype(np.float64)


def numbers(random, shape, T, integers=False):
    """Returns numbers that T holds exactly: small integers, so that fp32 sums of them are exact, or numbers from -2 to
    2."""
    x = random.integers(-8, 9, shape) if integers else random.uniform(-2, 2, shape)
    return decode(encode(x, T))


def kind(T):
    return np.float32 if T == 'float' else np.uint16


def wide(T, n):
    """Returns how many elements a thread takes at once: 16 bytes of them, if rows of n allow it."""
    V = 16 // PRECISIONS[T]
    return V if n % V == 0 else 1


def address(x):
    return np.uint64(x)


def ceil(a, b):
    return -(-a // b)


# ---- comparison ----

def same(got, want, what='the output'):
    """Asserts equality bit for bit, except for the sign of zero."""
    got, want = decode(np.asarray(got)).reshape(-1), decode(np.asarray(want)).reshape(-1)
    bad = np.flatnonzero(got != want)
    if len(bad):
        i = int(bad[0])
        raise AssertionError(f'{what}: {len(bad)} of {got.size} differ: [{i}] is {got[i]!r}, not {want[i]!r}')


def near(got, want, size, what='the output', inside=2.0**-20):
    """Asserts that got, in fp32 or bf16, equals the float64 number want, up to two errors: its own rounding (2^-23 of
    it in fp32, 2^-8 in bf16), and the arithmetic's error, `inside` times the size of the numbers that were added up.
    2^-20 is eight fp32 roundings: enough for sums in another order, or for approximate functions, which are good to
    two bits."""
    rounding = 2.0**-8 if got.dtype == np.uint16 else 2.0**-23
    got = decode(got)
    bad = ~(np.abs(got - want) <= rounding * np.abs(want) + inside * size)
    if bad.any():
        i = tuple(int(v[0]) for v in np.nonzero(bad))
        raise AssertionError(f'{what}: {bad.sum()} of {got.size} are wrong: {list(i)} is {got[i]!r}, not {want[i]!r}')
