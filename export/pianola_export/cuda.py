"""Compiles a part's graphs for this machine's GPU: Inductor writes Triton kernels and the code that launches them.
Pianola's library for GPUs runs them, also here, when their memory is recorded."""

import copy
import ctypes
import dataclasses
import functools
import os
import pathlib
import re
import tempfile

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from .build import FLAGS, HERE, KNOWN, RUNTIME, Builder, Code, code_of, command, compiled, headers_of_torch, source_of
from .cut import ExportError

OPTIONS = {
    "triton.autotune_at_compile_time": True,
    "triton.store_cubin": True,
    "aot_inductor.embed_kernel_binary": False,
    "compile_threads": 1,
}


def library_for_gpus():
    named = os.environ.get("PIANOLA_CUDA")
    if not named or not pathlib.Path(named).is_file():
        raise ExportError(
            f"{named + ' is not there' if named else 'PIANOLA_CUDA is not set'}: set it to the path of"
            " libpianola-cuda.so, which runs the kernels; `make gpu` builds it in build/"
        )
    return pathlib.Path(named).resolve()


@functools.cache
def recorder():
    """Builds and loads the library that records graphs, with the one that runs them, once in a process. Returns
    it, and the names of the functions that graphs may import."""
    library = library_for_gpus()
    flags = ["-std=c11", "-D_GNU_SOURCE", "-O2", "-fPIC", "-shared", "-DRECORDS_CUDA"]
    flags += [f"-I{RUNTIME}", f"-I{RUNTIME}/units"]
    with tempfile.TemporaryDirectory() as folder:
        record = f"{folder}/record.so"
        link = [f"-L{library.parent}", f"-l:{library.name}", f"-Wl,-rpath,{library.parent}"]
        command("gcc", *flags, "-o", record, str(HERE / "record.c"), *link)
        names = command("nm", "-D", "--defined-only", str(library)).splitlines()
        # DEEPBIND: it calls the CUDA that Pianola's library is linked with, whatever PyTorch has loaded
        mode = ctypes.RTLD_GLOBAL | os.RTLD_DEEPBIND
        return ctypes.CDLL(record, mode=mode), {line.split()[-1] for line in names}


def on_gpu(module, values):
    """Returns a graph with its constants on the GPU, and inputs there like the values."""
    device = torch.device("cuda", torch.cuda.current_device())
    module = fx.GraphModule(module, copy.deepcopy(module.graph))
    for n in module.graph.nodes:
        if n.kwargs.get("device") is not None:
            n.kwargs = dict(n.kwargs, device=device)
    module.recompile()
    mode = FakeTensorMode()
    with mode:
        inputs = [torch.empty_strided(v.shape, v.stride(), dtype=v.dtype, device=device) for v in values]
        FakeTensorProp(module, mode).propagate_dont_convert_inputs(*inputs)
    return module, inputs, mode


def kernels_of(name, text, files):
    """Returns the kernels that a graph's code loads, as (name, machine code, PTX, bytes of shared memory)."""
    found = []
    for path, kernel, shared in re.findall(r'loadKernel\("([^"]*)", "([^"]*)", (\d+)', text):
        place = pathlib.Path(*pathlib.Path(path).parts[-2:])
        if place not in files or place.with_suffix(".ptx") not in files:
            raise ExportError(
                f"{name}: PyTorch {torch.__version__} does not leave the code of kernel {kernel} where it is"
                f" expected; known versions: {', '.join(KNOWN)}"
            )
        found.append((kernel, files[place], files[place.with_suffix(".ptx")], int(shared)))
    return found


@dataclasses.dataclass
class CudaCode(Code):
    """kernel_files: what kernels_of returns."""

    kernel_files: list


class CudaBuilder(Builder):
    gpu = True

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.machine = "sm_%d%d" % torch.cuda.get_device_capability()
        self.flags = [*FLAGS, "-DFOR_CUDA", f"-I{RUNTIME}", f"-I{RUNTIME}/units", *headers_of_torch()]
        self.headers = self.precompile()
        self.recorder, self.offered = recorder()

    def generate(self, name, graph, values):
        module, inputs, mode = on_gpu(graph.module, values)
        with mode:
            text, run, files = compiled(module, inputs, OPTIONS)
        wrappers = re.findall(
            r"^(?:template <[^>]*>\n)?static [^\n;]*void call_\w+\(.*?^}\n", text, re.S | re.M
        )
        pointers = sorted(set(re.findall(r"\bkernels_\.(\w+) = loadKernel", text)))
        members = "".join(f"    CUfunction {p} = nullptr;\n" for p in pointers)
        kernels = f"struct Kernels {{\n{members}}};\nstatic Kernels kernels;\n{''.join(wrappers)}"
        code = code_of(name, text, run, kernels)
        return CudaCode(code.kernels, code.body, code.dtypes, kernels_of(name, text, files))

    def source(self, unit, codes, constants):
        """Puts the kernels of all graphs into one table, whose rows a graph's code finds by name."""
        blobs, rows, codes = [], [], dict(codes)
        for name, code in codes.items():
            own = f"KERNELS = ::{unit}_kernels + {len(rows)};\nconstexpr int KERNEL_COUNT = {len(code.kernel_files)};\n"
            codes[name] = dataclasses.replace(
                code, kernels=f"static const aoti_kernel *const {own}{code.kernels}"
            )
            for kernel, cubin, ptx, shared in code.kernel_files:
                stem = f"{unit}_kernel_{len(rows)}"
                for what, content in ("cubin", cubin), ("ptx", ptx + b"\0"):
                    path = self.folder / f"{stem}.{what}"
                    path.write_bytes(content)
                    blobs.append(f'CONSTANTS({stem}_{what}, "{path}")\nextern "C" const char {stem}_{what}[];\n')
                rows.append(f'    {{"{kernel}", {stem}_cubin, {stem}_ptx, {shared}, nullptr}},\n')
        size = pathlib.Path(constants).stat().st_size
        table = (
            f'extern "C" const char {unit}_constants[];\n{"".join(blobs)}\n'
            f"static aoti_kernel {unit}_kernels[] = {{\n{''.join(rows)}    {{}},\n}};\n"
            f'EXPORTED aoti_code {unit}_code;\naoti_code {unit}_code = {{"{unit}", {unit}_kernels,'
            f" {unit}_constants, {len(rows)}, {size}, nullptr, false}};\n"
        )
        return source_of(codes, constants, unit, table)

    def open(self, unit, library):
        opened = super().open(unit, library)
        code = ctypes.c_void_p.in_dll(opened, f"{unit}_code")
        self.recorder.record_load(ctypes.byref(code), self.machine.encode())
        return opened
