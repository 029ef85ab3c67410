"""Lets Inductor compile for an H100 on a machine without a GPU: its properties are made up, kernels get the first of
their configurations instead of the fastest, and nothing runs in PyTorch. Import this before pianola_export."""

import contextlib
import re
import types
from unittest import mock

import torch
import torch._inductor.codegen.wrapper as wrapper
import torch._inductor.config as config
import torch._inductor.fx_passes.fuse_attention as fuse_attention
import torch._inductor.fx_passes.joint_graph as joint_graph
import torch._inductor.runtime.triton_helpers as triton_helpers
import torch._inductor.runtime.triton_heuristics as heuristics
import torch._subclasses.fake_tensor as fake_tensor
import triton
from torch._dynamo.device_interface import CudaInterface
from triton.backends.compiler import GPUTarget
from triton.compiler import CompiledKernel

TARGET = GPUTarget("cuda", 90, 32)
PROPERTIES = types.SimpleNamespace(
    name="NVIDIA H100",
    major=9,
    minor=0,
    multi_processor_count=132,
    total_memory=80 << 30,
    regs_per_multiprocessor=65536,
    max_threads_per_multi_processor=2048,
    max_threads_per_block=1024,
    warp_size=32,
    shared_memory_per_block=49152,
    shared_memory_per_block_optin=232448,
    shared_memory_per_multiprocessor=233472,
    L2_cache_size=50 << 20,
    gcnArchName="",
    clock_rate=1980000,
    memory_clock_rate=2619000,
    memory_bus_width=5120,
    uuid="",
)


class Nothing:
    """A guard of a device or a stream."""

    def __init__(self, *_, **__):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False


def constant(value):
    return lambda *_, **__: value


ALIKE = dict(  # functions of torch.cuda and of Dynamo's interface to it
    is_available=constant(True),
    current_device=constant(0),
    get_device_properties=constant(PROPERTIES),
    synchronize=constant(None),
    set_device=constant(None),
    device=Nothing,
)


class Driver:
    """Triton's driver."""

    def get_current_target(self):
        return TARGET

    def get_current_device(self):
        return 0

    def get_current_stream(self, device):
        return 0

    def get_active_torch_device(self):
        return torch.device("cuda", 0)

    def get_device_interface(self):
        return torch.cuda


def run(self, *args, stream=None, **kwargs):
    """Compiles a kernel and stores its code, in place of a launch."""
    if not self.launchers:
        self.precompile()
    self.launchers[0].store_cubin = True
    self.save_gpu_kernel(0, self.launchers[0])


def init_handles(self):
    self.module = self.function = 1
    self.n_regs, self.n_spills, self.n_max_threads = 0, 0, 1024
    self._run = constant(None)


def run_autotune_block(self):
    """Runs the code that would time kernels, on tensors of the CPU that nobody reads."""
    self.kernel_autotune_defs.splice("async_compile.wait(globals())\ndel async_compile\n")
    code = self.kernel_autotune_defs.getvalue() + "\n" + self.kernel_autotune_calls.getvalue()
    for of_gpu in (
        "device=torch.device('cuda',0)",
        "device=torch.device('cuda', 0)",
        "device=device(type='cuda', index=0)",
        "device='cuda:0'",
    ):
        code = code.replace(of_gpu, "device='cpu'")
    code = code.replace("torch.cuda.set_device(0)", "pass")
    code = re.sub(r"generate_example_value\((.*), 'cuda:0', (.*)\)", r"empty_value(\1, 'cpu', \2)", code)

    def empty_value(size, stride, device, dtype, offset, allocation=None):
        return torch.empty(max(1, (allocation or size or [1])[0]), dtype=dtype)

    exec(code, {"empty_value": empty_value})


def replacements():
    """Yields owners with their members that are replaced."""
    yield torch.cuda, ALIKE | dict(
        device_count=constant(1),
        get_device_capability=constant((9, 0)),
        get_device_name=constant("NVIDIA H100"),
        is_initialized=constant(True),
        _lazy_init=constant(None),
        get_rng_state=lambda *_: torch.zeros(16, dtype=torch.uint8),
        set_rng_state=constant(None),
        _DeviceGuard=Nothing,
        is_bf16_supported=constant(True),
        current_stream=constant(types.SimpleNamespace(cuda_stream=0)),
        mem_get_info=constant((70 << 30, 80 << 30)),
    )
    interface = ALIKE | dict(
        get_compute_capability=constant(90),
        exchange_device=constant(0),
        maybe_exchange_device=constant(0),
        is_triton_capable=constant(True),
        raise_if_triton_unavailable=constant(None),
        get_raw_stream=constant(0),
        get_multi_processor_count=constant(132),
    )
    yield CudaInterface, {n: v if isinstance(v, type) else staticmethod(v) for n, v in interface.items()}
    # these guard the device in C++, which looks for one
    yield torch.Tensor, dict(
        __invert__=lambda t: torch.bitwise_not(t),
        copy_=lambda t, *more: torch.ops.aten.copy_.default(t, *more),
    )
    yield fake_tensor, dict(init_gpu_context=constant(None))
    yield torch._C, dict(
        _cuda_getCurrentRawStream=constant(0),
        _cuda_getDevice=constant(0),
        _cuda_setDevice=constant(None),
        _cuda_exchangeDevice=constant(0),
        _cuda_maybeExchangeDevice=constant(0),
    )
    yield triton_helpers, dict(set_driver_to_gpu=constant(None), set_driver_to_cpu=constant(None))
    yield CompiledKernel, dict(_init_handles=init_handles)
    yield heuristics.StaticTritonCompileResult, dict(can_statically_launch=staticmethod(constant(None)))
    yield heuristics.CachingAutotuner, dict(
        run=run,
        benchmark_all_configs=lambda self, *_, **__: {l: float(i) for i, l in enumerate(self.launchers)},
        coordinate_descent_tuning=lambda self, launcher, *_, **__: launcher,
    )
    yield joint_graph, dict(lazy_init=constant(None))
    yield fuse_attention, dict(_sfdp_init=constant(None))
    yield wrapper.PythonWrapperCodegen, dict(generate_and_run_autotune_block=run_autotune_block)


@contextlib.contextmanager
def pretending():
    triton.runtime.driver.set_active(Driver())
    with contextlib.ExitStack() as stack:
        stack.enter_context(config.patch(joint_graph_constant_folding=False))  # which computes on the GPU
        for owner, members in replacements():
            for name, value in members.items():
                stack.enter_context(mock.patch.object(owner, name, value, create=True))
        yield
