"""Exports a PyTorch language model for Pianola: see schedules/pytorch.md."""

import dataclasses
import math
import os
import re
import sys
import tempfile
import time

import torch
from torch.nn import functional as F

from .build import DIMS, KNOWN, MACHINES, MOST_INPUTS, MOST_OUTPUTS, Builder
from .check import known_values
from .cut import ExportError, compiling, cut, evaluating, logits_of
from .inputs import find_varying
from .split import PARTITIONS, split
from .unit import build_unit, fingerprint, given_values, largest_error, run_traced
from .write import Export, frozen_fields, write

__all__ = ["export", "ExportError"]
MOST_PARAMETERS, LONGEST_NAME = 32, 63  # of a unit
TOLERANCE = 1e-4  # of compiled code, against autograd


def check_part(part, graphs):
    where = part.where or part.name
    y = graphs.graphs["forward"].module.graph.output_node().args[0][0].meta["val"]
    for what, t in ("input", part.x), ("output", y):
        if t.dtype != torch.float32:
            raise ExportError(
                f"{where}: its {what} is {t.dtype}, but must be torch.float32; convert it inside the layer"
            )
    for op, g in graphs.graphs.items():
        values = [n.meta["val"] for n in g.module.graph.find_nodes(op="placeholder")]
        if (
            len(g.inputs) > MOST_INPUTS
            or len(g.outputs) > MOST_OUTPUTS
            or any(v.dim() > DIMS for v in values)
        ):
            raise ExportError(
                f"{where}: its {op} reads {len(g.inputs)} tensors of up to {max(v.dim() for v in values)} dimensions"
                f" and makes {len(g.outputs)}, including those that are kept for the backward; at most"
                f" {MOST_INPUTS}, {DIMS} and {MOST_OUTPUTS} are supported: split the layer in two"
            )
    if len(graphs.parameters) > MOST_PARAMETERS:
        raise ExportError(
            f"{where}: has {len(graphs.parameters)} parameters, but a unit has at most {MOST_PARAMETERS}"
        )


def check_parameter(where, name, p, trained, owners):
    what = f"{where}: parameter {name}"
    last = name.rsplit(".", 1)
    if p.dtype != torch.float32:
        raise ExportError(f"{what} is {p.dtype}; call model.float()")
    if p.dim() not in (1, 2):
        raise ExportError(
            f"{what} has {p.dim()} dimensions; a unit's parameters are vectors and matrices: keep it as one,"
            " and view it in forward"
        )
    if (
        not re.fullmatch(r"[A-Za-z_][\w.]*", name)
        or len(name) > LONGEST_NAME
        or (len(last) == 2 and len(last[1]) == 1)
    ):
        raise ExportError(
            f"{what} has a name that cannot be in a checkpoint: at most {LONGEST_NAME} letters, digits, _ and"
            " dots, and more than one letter after the last dot; rename it"
        )
    if p.requires_grad and name not in trained:
        raise ExportError(f"{what} gets no gradient; call requires_grad_(False) on it")
    if id(p) in owners:
        raise ExportError(
            f"{what} is also {owners[id(p)]}'s; only a token table can be shared, with the output matrix"
        )
    owners[id(p)] = where


def check_ends(model, found):
    trained = [model.get_parameter(n).requires_grad for n in (found.output, *found.bias)]
    if any(trained) and not all(trained):
        name = found.bias[0] if trained[0] else found.output
        raise ExportError(
            f"{name} is frozen, but not all of the output layer: let its matrix and its bias both require"
            " gradients, or neither"
        )
    for name in (found.table, found.output):
        if not name.endswith(".weight"):
            raise ExportError(
                f"{name}: the token table and the output matrix must be called weight, as in nn.Embedding and"
                " nn.Linear"
            )


def prefix_of(names):
    """Returns the longest path that all names begin with."""
    return ".".join(os.path.commonprefix([n.split(".")[:-1] for n in names]) if names else [])


def shortened(part, graphs, prefix):
    """Returns a part and its graphs with their parameters' names without a prefix."""
    short = lambda n: n[len(prefix) + 1 :] if prefix and n.startswith(prefix + ".") else n
    for g in graphs.graphs.values():
        g.inputs = [(k, short(n)) if k in ("w", "frozen") else (k, n) for k, n in g.inputs]
        g.outputs = [(k, short(n)) if k == "dw" else (k, n) for k, n in g.outputs]
    return (
        dataclasses.replace(part, parameters={short(n): p for n, p in part.parameters.items()}),
        dataclasses.replace(graphs, parameters={short(n): p for n, p in graphs.parameters.items()}),
    )


class Exporter:
    """Makes units of a model's parts, each distinct one once, and lists the layers."""

    def __init__(self, model, batch, varying, found, partition, tell):
        self.model, self.batch, self.tokens, self.tell = model, batch, found.tokens, tell
        self.partition = partition
        self.units, self.layers, self.owners, self.weights = {}, [], {}, {}
        turned = {n: v.turned() for n, v in varying.items()}
        self.inputs = [{v.side: v.values for v in both.values()} for both in (varying, turned)]
        table = model.get_parameter(found.table).detach()
        self.y = [F.embedding(inputs["tokens"], table) for inputs in self.inputs]  # the last part's, of each batch
        self.drops = False  # a part before it
        self.add_ends(found)

    def add_ends(self, found):
        """Adds the weights of Pianola's own layers."""
        whose = {found.output: "the output matrix", found.table: "the token table"}
        for name, what in (whose | dict.fromkeys(found.bias, "the output's bias")).items():
            p = self.model.get_parameter(name)
            self.owners[id(p)], self.weights[name] = what, p

    def name_of(self, part):
        count = sum(re.fullmatch(part.name + r"(_\d+)?", u.name) is not None for u in self.units.values())
        return f"{part.name}_{count + 1}" if count else part.name

    def add_output(self, found):
        where = found.output.removesuffix(".weight")
        bias, frozen = str(bool(found.bias)).lower(), frozen_fields(self.model.get_parameter(found.output))
        linear = f'linear {{ width = {found.vocab}, bias = {bias}, hf = "{where}"{frozen} }}'
        parameters = [self.model.get_parameter(n).detach() for n in (found.output, *found.bias)]
        self.y = [F.linear(y, *parameters) for y in self.y]
        self.layers.append(("unembedding {}" if found.tied else linear, None))

    def add_part(self, builder, part):
        graphs = split(part, self.model, builder.gpu, self.partition)
        where, trained = part.where or part.name, {
            n for g in graphs.graphs.values() for k, n in g.outputs if k == "dw"
        }
        for n, p in graphs.parameters.items():
            check_parameter(where, n, p, trained, self.owners)
            self.weights[f"{part.where}.{n}" if part.where else n] = p
        check_part(part, graphs)
        self.pass_through(part, graphs, where)
        prefix = part.where or prefix_of(list(graphs.parameters))
        part, graphs = shortened(part, graphs, "" if part.where else prefix)
        key = fingerprint(part, graphs)
        if key not in self.units:
            name = self.name_of(part)
            self.units[key], error = build_unit(builder, name, part, graphs)
            if math.isnan(error):
                raise ExportError(f"{where}: its output or a gradient is NaN; correct the model or its weights")
            if not error < TOLERANCE:
                raise ExportError(
                    f"{where}: the compiled code differs from autograd by {error:.1e}; please report this"
                    " model"
                )
            self.tell(
                f"unit {name} of {prefix or where}: differs from autograd by {error:.1e}; keeps"
                f" {self.units[key].kept} bytes from F to the backward, {self.units[key].extra} from I to W"
            )
        self.layers.append((self.units[key].name, prefix))

    def pass_through(self, part, graphs, where):
        """Computes, without dropout, what a part makes of the output of the parts before it. Compares that
        output with the part's input in the model."""
        if not self.drops:
            check_value(f"{where}: its input differs", part.x, self.y[0])
        validate = graphs.graphs.get("validate", graphs.graphs["forward"])
        for i, inputs in enumerate(self.inputs):
            # Pianola passes memory on, and knows no strides.
            x = self.y[i].as_strided(part.x.shape, part.x.stride())
            y = run_traced(validate, given_values(dataclasses.replace(part, x=x, inputs=inputs), graphs))[0]
            self.y[i] = y.as_strided((y.numel(),), (1,)).view(y.shape)
        self.drops |= "validate" in graphs.graphs

    def check_logits(self, found):
        """Compares the logits with the model's, of the batch and of its inputs in reverse order."""
        check_value("the model's logits in eval mode differ", found.logits[0], self.y[0])
        if not found.logits[1].isnan().any():
            check_value(
                "with the tokens and inputs of the batch in reverse order, the model's logits differ",
                found.logits[1],
                self.y[1],
            )

    def check_left_out(self):
        """Returns the names of parameters that no part has. Refuses them if they are trained."""
        left = {n: p for n, p in self.model.named_parameters() if id(p) not in self.owners}
        trained = {n: p for n, p in left.items() if p.requires_grad}
        if trained:
            with compiling(), evaluating(self.model):
                logits = logits_of(self.model(**self.batch))
            gradients = torch.autograd.grad(logits.sum(), list(trained.values()), allow_unused=True)
            lost = [n for n, g in zip(trained, gradients) if g is not None]
            if lost:
                raise ExportError(
                    f"{lost[0]} is trained, and the logits depend on it, but no unit trains it: what layers read"
                    " besides their input is constant; use it inside a layer, or call requires_grad_(False) on it"
                )
        return list(left)


def check_value(what, wanted, got):
    error = largest_error({("y", None): wanted}, {("y", None): got.view(wanted.shape)})
    if not error < TOLERANCE:
        raise ExportError(
            f"{what} by {error:.1e} from what the exported units compute; move what the model computes between"
            " layers, or sets before it calls them, into the layers; only dropout may differ in training mode"
        )


def check_read(varying, units):
    """Refuses inputs that no unit reads."""
    read = {n for unit in units for n in unit.side}
    for n, v in varying.items():
        if v.side not in read | {"tokens"}:
            raise ExportError(f"input {n}: nothing in the model depends on it; leave it out")


def check_request(machine, batch, device, partition):
    if device not in ("cpu", "cuda"):
        raise ExportError(f"device = {device!r}; choose cpu or cuda")
    if partition not in PARTITIONS:
        raise ExportError(f"partition = {partition!r}; choose {' or '.join(PARTITIONS)}")
    if device == "cuda":
        check_gpu()
    if ".".join(torch.__version__.split(".")[:2]) not in KNOWN:
        print(
            f"pianola-export: PyTorch {torch.__version__} is not one of the known versions,"
            f" {', '.join(KNOWN)}; trying",
            file=sys.stderr,
        )
    if machine not in MACHINES:
        raise ExportError(f"machine = {machine!r}; choose one of {', '.join(MACHINES)}")
    if not isinstance(batch, dict) or not all(isinstance(v, torch.Tensor) for v in batch.values()):
        raise ExportError(
            "batch must have the arguments of a call by name, each a tensor, such as"
            " {'tokens': torch.zeros(2, 128, dtype=torch.long)}"
        )


def check_gpu():
    """Refuses to export for GPUs where there is none: Inductor times kernels on one, and the graphs run there
    once."""
    if not torch.cuda.is_available():
        raise ExportError(
            "--device cuda needs a machine with an NVIDIA GPU and a PyTorch for CUDA, since kernels are chosen"
            " by their times and compared with autograd there; export on such a machine"
        )


def make_builder(folder, machine, device):
    if device == "cuda":
        from .cuda import CudaBuilder  # which needs a GPU

        return CudaBuilder(folder)
    return Builder(folder, machine)


def export(model, layers, batch, out, machine="x86-64-v3", quiet=False, device="cpu", inputs=None, partition="default"):
    """Exports a language model. layers: the path of the list of its repeated layers. batch: the arguments of
    a call, by name, whose tokens have the shape of a microbatch. out: the folder to write. machine: the
    processors that will run it. device: "cuda" for GPUs like this machine's instead. inputs: the names of the
    arguments besides the tokens that differ from microbatch to microbatch, and for each how many values its
    integers may have, or None. partition: "min-cut" keeps fewer bytes from F to the backward, which computes more
    again. The model stays on the CPU. The loss is the cross-entropy of the logits."""
    began = time.time()

    def tell(text):
        if not quiet:
            print(f"{time.time() - began:6.1f} s  {text}", file=sys.stderr, flush=True)

    check_request(machine, batch, device, partition)
    if getattr(getattr(model, "config", None), "use_cache", False):
        model.config.use_cache = False
    varying = find_varying(batch, inputs or {})
    if device == "cuda" and any(v.values.numel() % 4 for v in varying.values()):
        raise ExportError("on GPUs, rows x context must be a multiple of 4, so that inputs begin at multiples of 16 bytes")
    found = cut(model, layers, batch, varying)
    check_ends(model, found)
    tell(f"cut into {len(found.parts)} parts; tokens: {found.table}; output: {found.output}")
    constant = [n for n in batch if n not in varying]
    if constant:
        tell(f"constants, with the values in the batch: {', '.join(constant)}")
    exporter = Exporter(model, batch, varying, found, partition, tell)
    with tempfile.TemporaryDirectory() as folder:
        builder = make_builder(folder, machine, device)
        for part in found.parts:
            if part == "output":
                exporter.add_output(found)
            elif part != "table":
                exporter.add_part(builder, part)
        exporter.check_logits(found)
        check_read(varying, exporter.units.values())
        left_out = exporter.check_left_out()
        names = {id(p): n for n, p in model.named_parameters()}
        parameters = {names[id(p)]: p for p in exporter.weights.values()}
        weights = {n: p.detach().contiguous().clone() for n, p in parameters.items()}
        trained = {n: p for n, p in parameters.items() if p.requires_grad and not exporter.drops}
        write(
            Export(
                type(model).__name__,
                builder.machine,
                builder.gpu,
                *exporter.tokens.shape,
                [v for v in varying.values() if v.side != "tokens"],
                found,
                frozen_fields(model.get_parameter(found.table)),
                list(exporter.units.values()),
                exporter.layers,
                weights,
                known_values(model, batch, varying, found.vocab, trained),
            ),
            out,
        )
    if left_out:
        tell(f"left out {len(left_out)} parameters that no gradient reaches: {', '.join(left_out)}")
    tell(f"wrote {out}: {len(exporter.units)} units, {sum(p.numel() for p in weights.values())} parameters")
