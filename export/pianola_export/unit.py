"""Makes a unit of a part: lays out its tensors, compiles its graphs, and compares them with autograd."""

import dataclasses
import hashlib
import pathlib

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .build import Builder, aligned, nbytes, plan
from .cut import ExportError, dense

OPERATIONS = ("forward", "input", "weight")


@dataclasses.dataclass
class Unit:
    """A compiled unit. graphs: Planned, by operation, and validate, the forward without dropout. Sizes are
    bytes."""

    name: str
    graphs: dict
    parameters: dict
    library: pathlib.Path
    rows: int
    columns_in: int
    columns_out: int
    keeps: str
    side: list
    stash: int
    extra: int
    work: list
    flop: list

    @property
    def sha256(self):
        return hashlib.sha256(self.library.read_bytes()).hexdigest()

    @property
    def kept(self):
        """Bytes that are kept from F to the backward."""
        columns = {"x": self.columns_in, "y": self.columns_out}
        return self.stash + sum(4 * self.rows * columns[k] for k in self.keeps)

    @property
    def frozen(self):
        return [n for n, p in self.parameters.items() if not p.requires_grad]


# ---- values to compile and compare with ----


def run_traced(graph, values):
    with torch.no_grad():
        return graph.module(*[values[k] for k in graph.inputs])


def given_values(part, split):
    """Returns the values that a part's graphs start from, by kind."""
    return {
        ("x", None): part.x,
        **{("input", n): t for n, t in part.inputs.items()},
        **{("constant", n): t for n, t in split.constants.items()},
        **{("w" if p.requires_grad else "frozen", n): dense(p) for n, p in split.parameters.items()},
    }


def values_of(part, split):
    """Runs the graphs in PyTorch, on random numbers. Returns all values, by kind."""
    generator = torch.Generator().manual_seed(1)
    values = given_values(part, split)
    for graph in split.graphs.values():
        for kind, n in zip(graph.inputs, graph.module.graph.nodes):
            if kind[0] == "random":
                values[kind] = torch.rand(n.meta["val"].shape, generator=generator)
    for op in OPERATIONS:
        if op in split.graphs:
            values.update(zip(split.graphs[op].outputs, run_traced(split.graphs[op], values)))
        if op == "forward":
            values["dy", None] = torch.randn(values["y", None].shape, generator=generator)
    return values


class Drawing(TorchDispatchMode):
    """Counts what dropout draws, and after `skip` draws lets it draw given uniform numbers."""

    def __init__(self, numbers=(), skip=0):
        super().__init__()
        self.numbers, self.skip, self.states = numbers, skip, {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is torch.ops.aten.bernoulli_.float:
            # Checkpointing draws again from the same state.
            i = self.states.setdefault(bytes(torch.get_rng_state().numpy()), len(self.states)) - self.skip
            drawn, keep = function(*args), args[1] if len(args) > 1 else 0.5
            return drawn.copy_(self.numbers[i] > 1 - keep) if 0 <= i < len(self.numbers) else drawn
        return function(*args, **(kwargs or {}))


def by_autograd(part, dy, numbers):
    x = part.x.clone().requires_grad_(True)
    parameters = {n: p.detach().clone().requires_grad_(p.requires_grad) for n, p in part.parameters.items()}
    others = [*part.inputs.values(), *part.constants.values()]
    with Drawing() as drawn, torch.no_grad():
        part.function(x, *others, *parameters.values())
    # The parts before this one draw first.
    with Drawing(numbers, len(drawn.states) - len(numbers)):
        y = part.function(x, *others, *parameters.values())
        y.backward(dy)
    return {
        ("y", None): y.detach(),
        ("dx", None): x.grad,
        **{("dw", n): p.grad for n, p in parameters.items() if p.grad is not None},
    }


def largest_error(wanted, computed):
    """Returns the largest error, relative to the tensor's largest element, or NaN if there is one. Parameters'
    gradients that are 0 but for rounding, like a key bias's, are compared with the largest one."""
    if set(wanted) - set(computed):
        return float("inf")
    most = max((float(t.abs().max()) for (kind, _), t in wanted.items() if kind == "dw"), default=0.0)
    errors = []
    for (kind, name), t in wanted.items():
        floor = 1e-3 * most if kind == "dw" else 1e-30
        errors.append(
            (computed[kind, name].float() - t.float()).abs().max() / t.float().abs().max().clamp(floor)
        )
    return float(torch.stack(errors).max())


# ---- layouts ----


def in_a_row(kinds, values):
    """Returns the offsets of tensors that lie one after the other, each aligned, and the bytes of all."""
    offsets, total = {}, 0
    for kind in kinds:
        offsets[kind] = total
        total += aligned(nbytes(values[kind]))
    return offsets, total


def parameter_offsets(parameters):
    """Returns where parameters and their gradients lie, without gaps, the frozen ones apart."""
    offsets, ends = {}, {"w": 0, "frozen": 0}
    for n, p in parameters.items():
        kind = "w" if p.requires_grad else "frozen"
        offsets[kind, n] = offsets["dw", n] = ends[kind]
        ends[kind] += 4 * p.numel()
    return offsets


def spaces_of(inputs):
    """Returns the space of each input of a unit, by kind: enum aoti_space."""
    named = [n for n in inputs if n != "tokens"]
    return {("input", "tokens"): "tokens"} | {("input", n): f"input + {i}" for i, n in enumerate(named)}


def bytes_of(t):
    flat = torch.as_strided(t, (nbytes(t) // t.element_size(),), (1,)).contiguous()
    return bytes(flat.view(torch.uint8).numpy()) if t.numel() else b""


def blob(kinds, offsets, values, total):
    content = bytearray(total)
    for kind in kinds:
        content[offsets[kind] : offsets[kind] + nbytes(values[kind])] = bytes_of(values[kind])
    return bytes(content)


# ---- the unit ----


def build_unit(builder: Builder, name, part, split):
    """Compiles a part. Returns its unit, and the largest relative error against autograd."""
    values, graphs = values_of(part, split), split.graphs
    spaces = {s: [k for g in graphs.values() for k in g.outputs if k[0] == s] for s in ("stash", "extra")}
    spaces["constant"] = [("constant", n) for n in split.constants]
    spaces["random"] = sorted(k for k in values if k[0] == "random")
    offsets, total = parameter_offsets(split.parameters), {}
    for space, kinds in spaces.items():
        more, total[space] = in_a_row(kinds, values)
        offsets |= more
    codes = {
        f"{name}_{op}": builder.generate(f"{name}_{op}", g, [values[k] for k in g.inputs])
        for op, g in graphs.items()
    }
    library = builder.library(name, codes, blob(spaces["constant"], offsets, values, total["constant"]))
    opened = builder.open(name, library)
    wanted = by_autograd(part, values["dy", None], [values[k] for k in spaces["random"]])
    planned, computed, space_of = {}, {}, spaces_of(split.inputs)
    for op, graph in graphs.items():
        expected = run_traced(graph, values)
        tensors = [(values[k], offsets.get(k, 0)) for k in graph.inputs]
        recorded = builder.record(f"{name}_{op}", opened, tensors, expected)
        if op == "validate":
            wanted["y", op], computed["y", op] = *expected, *recorded.results
        else:
            computed.update(zip(graph.outputs, recorded.results))
        inputs = [(space_of.get(k, k[0]), offsets.get(k, 0), values[k]) for k in graph.inputs]
        outputs = [(k[0], offsets.get(k, 0), nbytes(values[k]), k in graph.products) for k in graph.outputs]
        planned[op] = plan(f"{name}_{op}", inputs, outputs, recorded, total["random"] // 4, builder.gpu)
    reads = {k[0] for op in ("input", "weight") if op in graphs for k in graphs[op].inputs}
    work = [planned[op].work if op in planned else 0 for op in OPERATIONS]
    work[0] = max(work[0], planned["validate"].work if "validate" in planned else 0)
    unit = Unit(
        name,
        planned,
        split.parameters,
        library,
        part.x.numel() // part.x.shape[-1],
        part.x.shape[-1],
        values["y", None].shape[-1],
        "".join(k for k in "xy" if k in reads),
        [*(["seed"] if "validate" in graphs else []), *split.inputs],
        total["stash"],
        total["extra"],
        work,
        [graphs[op].flop if op in graphs else 0 for op in OPERATIONS],
    )
    return unit, largest_error(wanted, computed)


def fingerprint(part, split):
    """Returns a hash of all that a unit's code depends on: equal parts share one unit."""
    h = hashlib.sha256()
    for op, g in split.graphs.items():
        shapes = [
            (str(n.meta["val"].shape), str(n.meta["val"].stride()), str(n.meta["val"].dtype))
            for n in g.module.graph.nodes
            if n.op == "placeholder"
        ]
        h.update(repr((op, g.module.code, g.inputs, g.outputs, shapes)).encode())
    h.update(repr([(n, p.shape, p.requires_grad) for n, p in split.parameters.items()]).encode())
    for n, t in split.constants.items():
        h.update(n.encode() + bytes_of(t.contiguous()))
    return h.hexdigest()
