"""Exports a PyTorch language model for Pianola: see schedules/pytorch.md."""

import dataclasses
import hashlib
import os
import pathlib
import re
import sys
import tempfile
import time

import torch

from .build import KNOWN, MACHINES, Builder, aligned, generate, nbytes, plan
from .cut import Cut, ExportError, cut
from .split import split
from .write import write

__all__ = ["export", "ExportError"]
RECORD = 192  # AOTI_RECORD in runtime/units/aoti.h
MOST_PARAMETERS = 32  # of a unit


@dataclasses.dataclass
class Unit:
    name: str
    graphs: dict  # of Planned, by function
    parameters: list  # of (name, parameter)
    library: pathlib.Path
    sha256: str
    frozen: list  # of names
    rows: int
    columns_in: int
    columns_out: int
    keeps: str
    stash: int
    extra: int
    work: list
    flop: list


@dataclasses.dataclass
class Export:
    title: str
    machine: str
    rows: int
    context: int
    cut: Cut
    units: list
    layers: list  # of (Lua constructor, name in files)
    weights: dict


def say(began, text):
    print(f"{time.time() - began:6.1f} s  {text}", file=sys.stderr, flush=True)


# ---- one unit ----


def values_of(part, parts):
    """Runs a part's graphs in PyTorch. Returns all values, by kind."""
    generator = torch.Generator().manual_seed(1)
    values = {("x", None): part.x, **{("constant", n): t for n, t in parts.constants.items()},
              **{("w" if p.requires_grad else "frozen", n): p.detach() for n, p in parts.parameters.items()}}
    for graph in parts.graphs.values():
        for kind, n in zip(graph.inputs, graph.module.graph.nodes):
            if kind[0] == "random":
                values[kind] = torch.rand(n.meta["val"].shape, generator=generator)
    for op in ("forward", "input", "weight"):
        if op in parts.graphs:
            values.update(zip(parts.graphs[op].outputs, run_traced(parts.graphs[op], values)))
        if op == "forward":
            values["dy", None] = torch.randn(values["y", None].shape, generator=generator)
    return values


def run_traced(graph, values):
    with torch.no_grad():
        return graph.module(*[values[k] for k in graph.inputs])


def eager(part, dy):
    x = part.x.clone().requires_grad_(True)
    parameters = {n: p.detach().clone().requires_grad_(p.requires_grad) for n, p in part.parameters.items()}
    y = part.function(x, *part.constants.values(), *parameters.values())
    y.backward(dy)
    return {("y", None): y.detach(), ("dx", None): x.grad,
            **{("dw", n): p.grad for n, p in parameters.items() if p.grad is not None}}


def layout(kinds, values):
    """Returns offsets of tensors that lie one after the other, each aligned, and the bytes in all."""
    offsets, total = {}, 0
    for kind in kinds:
        offsets[kind] = total
        total += aligned(nbytes(values[kind]))
    return offsets, total


def build_unit(builder, name, part, parts):
    """Compiles a part. Returns its unit, and the largest relative error against autograd."""
    values = values_of(part, parts)
    kept = {space: [k for g in parts.graphs.values() for k in g.outputs if k[0] == space] for space in ("stash", "extra")}
    stash_at, stash = layout(kept["stash"], values)
    extra_at, extra = layout(kept["extra"], values)
    constants = [("constant", n) for n in parts.constants]
    constant_at, total = layout(constants, values)
    blob = bytearray(total)
    for kind in constants:
        t = values[kind]
        flat = torch.as_strided(t, (nbytes(t) // t.element_size(),), (1,)).contiguous()
        blob[constant_at[kind]: constant_at[kind] + nbytes(t)] = bytes(flat.view(torch.uint8).numpy()) if t.numel() else b""
    offset = stash_at | extra_at | constant_at
    ends = {"w": 0, "frozen": 0}
    for n, p in parts.parameters.items():
        kind = "w" if p.requires_grad else "frozen"
        offset[kind, n] = offset["dw", n] = ends[kind]
        ends[kind] += 4 * p.numel()
    functions = {f"{name}_{op}": g for op, g in parts.graphs.items()}
    codes = {f: generate(f, g, [values[k] for k in g.inputs], builder.bits) for f, g in functions.items()}
    library = builder.library(name, codes, bytes(blob))
    randoms = sorted(k for k in values if k[0] == "random")
    random_at, drawn = layout(randoms, values)
    offset |= random_at
    # Random numbers differ from autograd's own, so these are compared with the traced graphs.
    wanted = eager(part, values["dy", None]) if not randoms else {k: values[k] for g in parts.graphs.values() for k in g.outputs}
    planned, computed = {}, {}
    for (op, graph), function in zip(parts.graphs.items(), functions):
        expected = run_traced(graph, values)
        recorded = builder.record(function, library, [values[k] for k in graph.inputs], expected)
        if op == "validate":
            wanted["y", op], computed["y", op] = expected[0], recorded[2][0]
        else:
            computed.update(zip(graph.outputs, recorded[2]))
        inputs = [(k[0], offset.get(k, 0), values[k]) for k in graph.inputs]
        outputs = [(k[0], offset.get(k, 0), nbytes(values[k])) for k in graph.outputs]
        reads_random = any(k[0] == "random" for k in graph.inputs)
        planned[op] = plan(function, inputs, outputs, recorded, RECORD, drawn // 4 if reads_random else 0)
    reads = {k[0] for op in ("input", "weight") if op in parts.graphs for k in parts.graphs[op].inputs}
    y = values["y", None]
    three = [planned[op].work if op in planned else 0 for op in ("forward", "input", "weight")]
    three[0] = max(three[0], planned["validate"].work if "validate" in planned else 0)
    flop = [parts.graphs[op].flop if op in parts.graphs else 0 for op in ("forward", "input", "weight")]
    unit = Unit(name, planned, list(parts.parameters.items()), library, hashlib.sha256(library.read_bytes()).hexdigest(),
                [n for n, p in parts.parameters.items() if not p.requires_grad], part.x.numel() // part.x.shape[-1],
                part.x.shape[-1], y.shape[-1], "".join(k for k in "xy" if k in reads), stash, extra, three, flop)
    return unit, largest_error(wanted, computed)


def largest_error(wanted, computed):
    """Returns the largest error, relative to the tensor's largest element. Parameters' gradients that are 0 but for
    rounding, as of a key's bias, are compared with the largest one."""
    most = max((float(t.abs().max()) for (kind, _), t in wanted.items() if kind == "dw"), default=0.0)
    floor = {"dw": 1e-3 * most}
    return max(float((computed[k].float() - t.float()).abs().max()) / max(float(t.float().abs().max()), floor.get(k[0], 0.0), 1e-30)
               for k, t in wanted.items())


def fingerprint(part, parts):
    """Returns a hash of all that a unit's code depends on: equal parts share one unit."""
    h = hashlib.sha256()
    for op, g in parts.graphs.items():
        metas = [(str(n.meta["val"].shape), str(n.meta["val"].stride()), str(n.meta["val"].dtype))
                 for n in g.module.graph.nodes if n.op == "placeholder"]
        h.update(repr((op, g.module.code, g.inputs, g.outputs, metas)).encode())
    h.update(repr([(n, p.shape, p.requires_grad) for n, p in parts.parameters.items()]).encode())
    for n, t in parts.constants.items():
        h.update(n.encode() + bytes(t.contiguous().flatten().view(torch.uint8).numpy()))
    return h.hexdigest()


# ---- checks ----


def check_constants(part, parts, inputs, tokens):
    for n in parts.constants:
        if inputs.get(n) is tokens:
            raise ExportError(f"{part.where or part.name}: reads the tokens beside their vectors, for example to find "
                              "padding; only the token table may read them")


def check_parameters(part, parts, seen):
    if len(parts.parameters) > MOST_PARAMETERS:
        raise ExportError(f"{part.where or part.name}: has {len(parts.parameters)} parameters, but a unit has at most "
                          f"{MOST_PARAMETERS}")
    for n, p in parts.parameters.items():
        if p.dtype != torch.float32:
            raise ExportError(f"{part.where or part.name}: parameter {n} is {p.dtype}; call model.float()")
        if id(p) in seen:
            raise ExportError(f"{part.where or part.name}: parameter {n} is also {seen[id(p)]}'s; of shared parameters "
                              "only a token table that is the output matrix can be exported")
        seen[id(p)] = part.where or part.name


# ---- the model ----


def prefix_of(names):
    """Returns the longest path that all names begin with."""
    parts = [n.split(".")[:-1] for n in names]
    common = os.path.commonprefix(parts) if parts else []
    return ".".join(common)


def export(model, layers="model.layers", batch=None, out="model", machine="x86-64-v3", title=None, quiet=False):
    """Exports a language model. layers: the path of the list of its repeated layers. batch: the inputs of a call, by
    name, whose tokens have the shape of a microbatch. out: the folder to write."""
    began = time.time()
    tell = (lambda text: None) if quiet else (lambda text: say(began, text))
    version = ".".join(torch.__version__.split(".")[:2])
    if version not in KNOWN:
        print(f"pianola-export: PyTorch {torch.__version__} is not one of the known versions, {', '.join(KNOWN)}; trying",
              file=sys.stderr)
    if machine not in MACHINES:
        raise ExportError(f"machine = {machine!r}; choose one of {', '.join(MACHINES)}")
    if hasattr(model, "config") and getattr(model.config, "use_cache", False):
        model.config.use_cache = False
    parts = cut(model, layers, batch)
    tell(f"cut: {len(parts.parts)} parts, tokens {parts.table}, output {parts.output}{', tied' if parts.tied else ''}")
    tokens = next(v for v in batch.values() if not v.is_floating_point())
    for name in (parts.table, parts.output):
        if not model.get_parameter(name).requires_grad:
            raise ExportError(f"{name} is frozen; a token table and an output matrix are trained: let them require gradients")
    units, listed, seen = {}, [], {id(model.get_parameter(parts.table)): "the token table"}
    with tempfile.TemporaryDirectory() as folder:
        builder = Builder(folder, machine)
        for part in parts.parts:
            if part == "table":
                continue
            if part == "output":
                where = parts.output.removesuffix(".weight")
                listed.append((f"unembedding {{}}" if parts.tied else
                               f'linear {{ width = {parts.vocab}, bias = {str(parts.biased).lower()}, hf = "{where}" }}', None))
                continue
            graphs = split(part, model)
            check_constants(part, graphs, batch, tokens)
            check_parameters(part, graphs, seen)
            prefix = part.where or prefix_of(graphs.parameters)
            if not part.where:
                part, graphs = shortened(part, graphs, prefix)
            key = fingerprint(part, graphs)
            if key not in units:
                name = part.name
                count = sum(u.name == name or u.name.startswith(name + "_") for u in units.values())
                name = f"{name}_{count + 1}" if count else name
                units[key], error = build_unit(builder, name, part, graphs)
                if not error < 1e-4:
                    raise ExportError(f"{part.where or part.name}: the compiled code differs from autograd by {error:.1e}; "
                                      "please report this model")
                tell(f"unit {name}: {part.where or ', '.join(graphs.parameters) or 'no parameters'}; differs from "
                     f"autograd by {error:.1e}")
            listed.append((units[key].name, prefix))
        result = Export(title or type(model).__name__, machine, tokens.shape[0], tokens.shape[1], parts,
                        list(units.values()), listed,
                        {n: p.detach().contiguous().clone() for n, p in model.named_parameters()})
        write(result, out)
    tell(f"wrote {out}: {len(units)} units, {sum(p.numel() for p in model.parameters())} parameters")


def shortened(part, graphs, prefix):
    """Returns a part and its graphs with their parameters' names without a prefix."""
    short = lambda n: n[len(prefix) + 1:] if prefix and n.startswith(prefix + ".") else n
    for g in graphs.graphs.values():
        g.inputs = [(k, short(n)) if k in ("w", "frozen") else (k, n) for k, n in g.inputs]
        g.outputs = [(k, short(n)) if k == "dw" else (k, n) for k, n in g.outputs]
    return (dataclasses.replace(part, parameters={short(n): p for n, p in part.parameters.items()}),
            dataclasses.replace(graphs, parameters={short(n): p for n, p in graphs.parameters.items()}))
