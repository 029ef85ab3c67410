"""Compiles a part's graphs with AOTInductor into one library, and records the memory that they allocate."""

import contextlib
import ctypes
import dataclasses
import functools
import hashlib
import os
import pathlib
import re
import subprocess
import tempfile

import torch
import torch._inductor
from torch._inductor.cpu_vec_isa import valid_vec_isa_list
from torch._inductor.runtime.cache_dir_utils import cache_dir

from .cut import ExportError, compiling

HERE = pathlib.Path(__file__).parent
RUNTIME = HERE / "runtime"  # Pianola's
# Versions of PyTorch whose generated code is known. Others are tried, with a warning.
KNOWN = ("2.15",)
# Processors: what the compiler is told, and the bits of a vector register for which PyTorch writes code.
MACHINES = {
    "x86-64": ([], 1),
    "x86-64-v3": (["-DCPU_CAPABILITY=AVX2", "-DCPU_CAPABILITY_AVX2"], 256),
    "x86-64-v4": (["-DCPU_CAPABILITY=AVX512", "-DCPU_CAPABILITY_AVX512"], 512),
}
FLAGS = (
    "-std=c++20 -O3 -DNDEBUG -fPIC -fvisibility=hidden -ffp-contract=off -fno-trapping-math -fno-math-errno "
    "-fno-tree-loop-vectorize -w -DTORCH_INDUCTOR_CPP_WRAPPER -DSTANDALONE_TORCH_HEADER "
    "-DC10_USING_CUSTOM_GENERATED_MACROS"
).split()
# AOTI_DIMS and AOTI_RECORD in runtime/units/aoti.h, AOTI_AT_ONCE in aoti_state.h; what aoti.c can pass to a graph, and
# get of one.
DIMS, ALIGN, RECORD, AT_ONCE, MOST_INPUTS, MOST_OUTPUTS = 8, 64, 192, 16, 256, 128
DTYPES = {
    torch.uint8: 0,
    torch.int8: 1,
    torch.int16: 2,
    torch.int32: 3,
    torch.int64: 4,
    torch.float16: 5,
    torch.float32: 6,
    torch.float64: 7,
    torch.bool: 11,
    torch.bfloat16: 15,
}


class Input(ctypes.Structure):
    _fields_ = [
        ("space", ctypes.c_int32),
        ("offset", ctypes.c_int64),
        ("dtype", ctypes.c_int32),
        ("dims", ctypes.c_int32),
        ("size", ctypes.c_int64 * DIMS),
        ("stride", ctypes.c_int64 * DIMS),
    ]


class Recorded(ctypes.Structure):
    _fields_ = [
        ("bytes", ctypes.c_int64),
        ("born", ctypes.c_int64),
        ("died", ctypes.c_int64),
        ("products", ctypes.c_int64),
        ("at", ctypes.c_void_p),
    ]


class Output(ctypes.Structure):
    _fields_ = [
        ("allocation", ctypes.c_int64),
        ("offset", ctypes.c_int64),
        ("dtype", ctypes.c_int64),
        ("dims", ctypes.c_int64),
        ("size", ctypes.c_int64 * DIMS),
        ("stride", ctypes.c_int64 * DIMS),
        ("data", ctypes.c_void_p),
    ]


@dataclasses.dataclass
class Recording:
    """A run of a graph. allocations: (bytes, when made, when deleted) of each. products: how many matrix products
    wrote to each. outputs: (allocation, offset). results: the outputs' values. tensors: the most at once."""

    allocations: list
    products: list
    outputs: list
    results: list
    tensors: int


@dataclasses.dataclass
class Planned:
    """A graph with its tape: inputs as (space, offset, tensor), allocations as (space, offset, bytes, spare),
    outputs by their numbers among these, and the places in its workspace."""

    name: str
    inputs: list
    tape: list
    outputs: list
    tensors: int
    pool: int
    random: int
    randoms: int
    work: int


@dataclasses.dataclass
class Code:
    """AOTInductor's code for a graph. kernels: what its run function calls. body: that function. dtypes: lines
    that make their names known."""

    kernels: str
    body: str
    dtypes: list


def aligned(n):
    return (n + ALIGN - 1) // ALIGN * ALIGN


def nbytes(t):
    """Returns the bytes from a tensor's first element to the end of its last."""
    last = sum((n - 1) * s for n, s in zip(t.shape, t.stride()))
    return (last + 1) * t.element_size() if t.numel() else 0


def command(*words):
    try:
        done = subprocess.run(words, capture_output=True, text=True)
    except FileNotFoundError as e:
        raise ExportError(
            f"{words[0]} is not installed; an export needs gcc, g++, nm and strip: apt-get install g++"
        ) from e
    if done.returncode:
        raise ExportError(f"{words[0]} fails: {' '.join(words)}\n{done.stderr[:4000]}")
    return done.stdout


# ---- code ----


@contextlib.contextmanager
def inductor_cache():
    """Gives Inductor a cache of its own, and returns the folder."""
    with tempfile.TemporaryDirectory() as cache:
        was = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
        try:
            yield pathlib.Path(cache)
        finally:
            del os.environ["TORCHINDUCTOR_CACHE_DIR"]
            if was is not None:
                os.environ["TORCHINDUCTOR_CACHE_DIR"] = was


def compiled(module, values, options):
    """Compiles a graph. Returns the text of its wrapper, the match of its run function there, and the contents of
    kernels' files by path."""
    everywhere = {
        "aot_inductor.link_libtorch": False,
        "aot_inductor.package": True,
        "aot_inductor.package_cpp_only": True,
        "aot_inductor.precompile_headers": False,
    }
    with inductor_cache() as cache, torch.no_grad(), compiling():
        torch._inductor.aot_compile(module, tuple(values), options=everywhere | options)
        text = "".join(p.read_text() for p in cache.rglob("*.wrapper.cpp"))
        files = {p.relative_to(cache): p.read_bytes() for p in cache.rglob("*") if p.suffix in (".cubin", ".ptx")}
    run = re.search(
        r"void AOTInductorModel::run_impl\(.*?^} // AOTInductorModel::run_impl\n", text, re.S | re.M
    )
    return text, run, files


def code_of(name, text, run, kernels):
    """Returns the code of a graph. text, run: of compiled."""
    if not run or "constants_->" in run[0]:
        raise ExportError(
            f"{name}: PyTorch {torch.__version__} writes code that is not known here; known versions: "
            f"{', '.join(KNOWN)}"
        )
    body = "".join(
        line
        for line in run[0].splitlines(True)
        if "__check_inputs_outputs(" not in line and "kernels_.get()" not in line
    )
    return Code(kernels, body, re.findall(r"^CACHE_TORCH_\w+\(.*\);", text, re.M))


def source_of(codes, constants, unit, table=""):
    """Returns the source of a unit's library. codes: Code by function. table: what comes before them."""
    text = ['#include "graph.hpp"\n']
    text += [*sorted({line + "\n" for code in codes.values() for line in code.dtypes}), table]
    for name, code in codes.items():
        body = code.body.replace("AOTInductorModel::run_impl", "Model::run_impl")
        text.append(
            f"\nnamespace torch::aot_inductor::{name} {{\n{code.kernels}\nMODEL\n{body}\n}}\nGRAPH({name})\n"
        )
    text.append(f'\nCONSTANTS({unit}_constants, "{constants}")\n')
    return "".join(text)


# ---- libraries ----


@functools.cache
def recorder():
    """Builds and loads the library that records graphs. Returns it, and the functions' names. There is one for a
    process, because graphs call the functions of the first one that was loaded."""
    flags = ["-std=c11", "-D_GNU_SOURCE", "-O2", "-fPIC", "-shared", f"-I{RUNTIME}", f"-I{RUNTIME}/units"]
    sources = [str(RUNTIME / "units" / f"aoti{part}.c") for part in ("", "_product", "_attention")]
    with tempfile.TemporaryDirectory() as folder:
        library = f"{folder}/record.so"
        command("gcc", *flags, "-o", library, str(HERE / "record.c"), *sources, "-lm")
        names = [line.split()[-1] for line in command("nm", "-D", "--defined-only", library).splitlines()]
        return ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL), set(names)


def headers_of_torch():
    include = pathlib.Path(torch.__file__).parent / "include"
    return [f"-I{include}", f"-I{include}/torch/csrc/api/include"]


class Builder:
    """Builds the libraries of an export in a temporary folder. machine: the processors that will run them. gpu:
    whether graphs run on one."""

    gpu = False

    def __init__(self, folder, machine):
        self.folder, self.machine = pathlib.Path(folder), machine
        flags, self.bits = MACHINES[machine]
        self.flags = [*FLAGS, f"-march={machine}", *flags, *headers_of_torch()]
        valid_vec_isa_list()  # compiles test programs, while the cache is still the one of all programs
        self.headers = self.precompile()
        self.recorder, self.offered = recorder()

    def generate(self, name, graph, values):
        text, run, _ = compiled(graph.module, values, {"cpp.threads": 1, "cpp.simdlen": self.bits})
        kernels = text[run.end() if run else 0 :].removeprefix("} // namespace torch::aot_inductor\n")
        kernels = re.sub(r"^(#include|//).*\n", "", kernels, flags=re.M).replace('extern "C"', "static")
        return code_of(name, text, run, kernels)

    def source(self, unit, codes, constants):
        """Returns the source of a unit's library. constants: the file with their values."""
        return source_of(codes, constants, unit)

    def precompile(self):
        """Compiles PyTorch's headers, which takes longer than a unit. Returns the folder, which later exports
        find."""
        headers = {name: (HERE / name).read_bytes() for name in ("graph.hpp", "sleef.hpp")}
        key = hashlib.sha256(
            repr((headers, self.flags, torch.__version__, command("g++", "--version"))).encode()
        )
        folder = pathlib.Path(cache_dir()) / f"pianola-{key.hexdigest()[:16]}"
        if not (folder / "graph.hpp.gch").exists():
            folder.mkdir(parents=True, exist_ok=True)
            new = folder / f"graph.{os.getpid()}.gch"
            for name, header in headers.items():
                (folder / name).write_bytes(header)
            command("g++", *self.flags, "-x", "c++-header", "-o", str(new), str(folder / "graph.hpp"))
            os.replace(new, folder / "graph.hpp.gch")
        return folder

    def library(self, unit, codes, constants):
        """Compiles a unit's graphs into one library. Returns its path."""
        blob, source, library = (self.folder / f"{unit}{end}" for end in (".bin", ".cpp", ".so"))
        blob.write_bytes(constants)
        source.write_text(self.source(unit, codes, blob))
        command(
            "g++",
            *self.flags,
            f"-I{self.headers}",
            "-shared",
            "-o",
            str(library),
            str(source),
            "-Wl,-z,noexecstack",
            "-lm",
        )
        command("strip", "--strip-unneeded", str(library))
        self.check_imports(unit, library)
        return library

    def check_imports(self, unit, library):
        lines = [line.split() for line in command("nm", "-D", "--undefined-only", str(library)).splitlines()]
        unknown = [
            w[1]
            for w in lines
            if w[0] == "U"
            and w[1] not in self.offered
            and not re.search(r"@(GLIBC|GLIBCXX|CXXABI|GCC)_", w[1])
        ]
        if unknown:
            raise ExportError(
                f"{unit}: its compiled code calls {', '.join(unknown)}, which Pianola's runtime does not "
                "have; write that part of the model with other operations"
            )

    # ---- recording ----

    def open(self, unit, library):
        return ctypes.CDLL(str(library))

    def record(self, name, opened, tensors, expected):
        """Runs a graph. opened: its library. tensors: pairs of an input and its offset in the space where it will
        lie. expected: tensors like its outputs."""
        run = opened[f"{name}_graph"]
        inputs = (Input * max(1, len(tensors)))()
        for i, (t, offset) in zip(inputs, tensors):
            i.offset, i.dtype, i.dims = offset, DTYPES[t.dtype], t.dim()
            i.size[: t.dim()], i.stride[: t.dim()] = t.shape, t.stride()
        data = (ctypes.c_void_p * max(1, len(tensors)))(*[t.data_ptr() for t, _ in tensors])
        outputs, made, most = (Output * len(expected))(), (Recorded * 65536)(), ctypes.c_int64()
        record = self.recorder.record
        record.restype = ctypes.c_int64
        n = record(
            name.encode(),
            run,
            ctypes.c_int64(len(tensors)),
            data,
            inputs,
            ctypes.c_int64(len(expected)),
            outputs,
            made,
            ctypes.c_int64(len(made)),
            ctypes.byref(most),
        )
        if n < 0:
            self.recorder.record_fault.restype = ctypes.c_char_p
            raise ExportError(
                f"{self.recorder.record_fault().decode()}; write that part of the model with other operations"
            )
        results = []
        for o, t in zip(outputs, expected):
            size, stride = list(o.size[: o.dims]), list(o.stride[: o.dims])
            if (
                o.dtype != DTYPES[t.dtype]
                or size != list(t.shape)
                or any(a != b for a, b, m in zip(stride, t.stride(), size) if m > 1)
            ):
                raise ExportError(
                    f"{name}: an output has strides {stride} for sizes {size}, but {t.stride()} when it "
                    "was traced; please report this model"
                )
            raw = bytearray(max(t.element_size(), nbytes(t)))
            bytes_of_raw = (ctypes.c_char * len(raw)).from_buffer(raw)
            self.recorder.record_read(bytes_of_raw, ctypes.c_void_p(o.data), ctypes.c_size_t(nbytes(t)))
            flat = torch.frombuffer(raw, dtype=t.dtype)
            results.append(torch.as_strided(flat, t.shape, t.stride()))
        recording = Recording(
            [(m.bytes, m.born, m.died) for m in made[:n]],
            [m.products for m in made[:n]],
            [(o.allocation, o.offset) for o in outputs],
            results,
            most.value,
        )
        self.recorder.record_free(made, ctypes.c_int64(n))
        return recording


# ---- plans ----


def place(allocations):
    """Places allocations, given as (index, bytes, born, died), first fit, the largest first. Returns their
    offsets by index, and the bytes that they take together."""
    placed, total = [], 0
    for i, size, born, died in sorted(allocations, key=lambda a: (-a[1], a[0])):
        at = 0
        for begin, end in sorted((b, e) for b, e, first, last, _ in placed if first < died and born < last):
            if at + size <= begin:
                break
            at = max(at, end)
        placed.append((at, at + aligned(size), born, died, i))
        total = max(total, at + aligned(size))
    return {i: at for at, _, _, _, i in placed}, total


def plan(name, inputs, outputs, recorded, randoms, gpu):
    """Returns the plan of a graph. inputs: (space, offset, tensor); outputs: (space, offset, bytes, is a
    product); randoms: how many random numbers the unit draws; gpu: whether it runs on one, and the records of its
    tensors elsewhere."""
    allocations, inner = recorded.allocations, {i for i, _ in recorded.outputs}
    offsets, pool = place([(i, *a) for i, a in enumerate(allocations) if i not in inner])
    tape = [("work", offsets.get(i), a[0], 0) for i, a in enumerate(allocations)]
    end = pool + (0 if gpu else aligned(recorded.tensors * RECORD))
    for (space, offset, size, product), (i, at) in zip(outputs, recorded.outputs):
        if i < 0 or at != 0 or tape[i] != ("work", None, size, 0):
            raise ExportError(f"{name}: an output is not an allocation of its own; please report this model")
        suits = not gpu or offset % AT_ONCE == 0
        in_place = space == "dw" and product and recorded.products[i] == 1 and suits
        has_spare = space == "dx" or (space == "dw" and not in_place)
        tape[i] = (space, offset, size, -1 if in_place else end if has_spare else 0)
        end += aligned(size) if has_spare else 0
    randoms = randoms if any(space == "random" for space, _, _ in inputs) else 0
    inputs = [
        ("work", end + offset, t) if space == "random" else (space, offset, t) for space, offset, t in inputs
    ]
    return Planned(
        name,
        inputs,
        tape,
        [i for i, _ in recorded.outputs],
        recorded.tensors,
        pool,
        end,
        randoms,
        end + aligned(4 * randoms),
    )
