"""Traces a part of a model and splits it into three graphs: F computes y, I the input's gradient, W the
parameters' gradients. Values that F computes for I or W are kept in the stash, and values that I computes for W
in `extra`."""

import collections
import contextlib
import dataclasses
import math
import operator

import networkx
import torch
from torch import fx
from torch._functorch.aot_autograd import aot_export_joint_simple
from torch._inductor.decomposition import select_decomp_table
from torch.nn.attention import SDPBackend, sdpa_kernel

from .cut import ExportError, compiling, dense, evaluating, not_traced

aten = torch.ops.aten
PIECES = {
    aten.split.Tensor,
    aten.split_with_sizes.default,
    aten.unbind.int,
}  # views, of which one is a getitem
FLASH = aten._scaled_dot_product_flash_attention_for_cpu.default
COPIES = {aten.clone.default, torch.ops.prims.convert_element_type.default, aten._to_copy.default}
PARTITIONS = ("default", "min-cut")
MORE_VIEWS = {aten.reshape.default, aten._unsafe_view.default}
RANDOM = (
    "rand",
    "bernoulli",
    "dropout",
    "seed",
    "multinomial",
    "normal_",
)  # but for aten.rand, which dropout draws


@dataclasses.dataclass
class Graph:
    """A graph. inputs: for each placeholder, what it is: ("x", None), ("dy", None), ("w", name), ("frozen",
    name), ("input", name), ("constant", name), ("y", None), ("random", i), uniform numbers, or ("stash", i) and
    ("extra", i), kept value number i. outputs: ("y", None), ("dx", None), ("dw", name), or kept values."""

    module: fx.GraphModule
    inputs: list
    outputs: list
    products: set  # the outputs that are matrix products
    flop: float


@dataclasses.dataclass
class Split:
    """A part's graphs, by name: forward, input, weight unless it trains no parameters, and validate, the
    forward without dropout, if it has that. inputs: the names of the part's that it reads. constants: their
    values."""

    graphs: dict
    inputs: list
    constants: dict
    parameters: dict


def value(node):
    return node.meta["val"]


def size(node):
    v = value(node)
    return v.numel() * v.element_size() if isinstance(v, torch.Tensor) else 0


# ---- tracing ----


def attention(kernels):
    """Lets attention be the function that the runtime has, or else products. kernels: whether it may be the
    function."""
    return sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH] if kernels else [SDPBackend.MATH])


def suits_gpu(gm):
    """Returns whether the runtime's kernels for GPUs can compute all attention of a graph."""

    def suits(q, k, v, dropout=0.0, causal=False, attn_mask=None, scale=None):
        (*_, rows, columns), keys = value(q).shape, value(k).shape[2]
        plain = scale is None or math.isclose(scale, columns**-0.5, rel_tol=1e-6)
        return causal and not dropout and attn_mask is None and plain and rows == keys and columns <= 128

    nodes = gm.graph.find_nodes(op="call_function", target=FLASH)
    return all(suits(*n.args, **n.kwargs) for n in nodes)


def trace(part, gpu=False):
    """Returns the joint graph of a part, the kind of each of its placeholders, and its constants."""
    found = trace_with(part, True)
    return found if not gpu or suits_gpu(found[0]) else trace_with(part, False)


def trace_with(part, kernels):
    x = dense(part.x).requires_grad_(True)
    constants = [t.detach() for t in (*part.inputs.values(), *part.constants.values())]
    parameters = [dense(p).requires_grad_(p.requires_grad) for p in part.parameters.values()]
    try:
        with compiling(), attention(kernels):
            gm = aot_export_joint_simple(
                lambda *a: (part.function(*a).clone(memory_format=torch.contiguous_format),),
                (x, *constants, *parameters),
                trace_joint=True,
                decompositions=select_decomp_table() | {aten.cumsum.default: cumsum},
            )
    except ExportError:
        raise
    except Exception as e:
        raise not_traced(part.where or part.name, e) from e
    kinds = [
        ("x", None),
        *[("input", n) for n in part.inputs],
        *[("constant", n) for n in part.constants],
        *[("w" if p.requires_grad else "frozen", n) for n, p in part.parameters.items()],
        ("dy", None),
    ]
    placeholders = [n for n in gm.graph.nodes if n.op == "placeholder"]
    if len(placeholders) != len(kinds):
        raise ExportError(
            f"{part.where or part.name}: cannot be traced: PyTorch finds {len(placeholders)} inputs instead"
            f" of {len(kinds)}; make its constant tensors buffers of the module"
        )
    kind = dict(zip(placeholders, kinds))
    constants = dict(part.constants)
    for n in gm.graph.nodes:
        if n.op == "get_attr":
            kind[n] = ("constant", n.target)
            constants[n.target] = getattr(gm, n.target)
            n.meta.setdefault("val", constants[n.target])
        elif n.target is aten.rand.default:
            kind[drawn_before(gm.graph, n)] = ("random", sum(k[0] == "random" for k in kind.values()))
        elif n.op == "call_function" and any(word in str(n.target) for word in RANDOM):
            raise ExportError(
                f"{part.where or part.name}: draws random numbers by {n.target}, and only dropout may; call "
                "model.eval()"
            )
    return gm, kind, constants


def drawn_before(graph, n):
    """Replaces a node that draws uniform numbers with an input. Returns that."""
    first = next(iter(graph.nodes))
    with graph.inserting_before(first):
        new = graph.placeholder(f"random_{n.name}")
    new.meta["val"] = value(n)
    n.replace_all_uses_with(new)
    return new


def cumsum(x, dim, *, dtype=None):
    """Sums by a mask, because Inductor calls PyTorch for cumulative sums."""
    n = x.shape[dim]
    x = x.to(dtype or (x.dtype if x.is_floating_point() else torch.int64)).movedim(dim, -1)
    return torch.where(torch.ones(n, n, dtype=torch.bool).tril(), x.unsqueeze(-2), 0).sum(-1).movedim(-1, dim)


# ---- views ----


def is_view(n):
    if n.op != "call_function":
        return False
    if n.target is operator.getitem:
        return n.args[0].target in PIECES
    return n.target in MORE_VIEWS or getattr(n.target, "is_view", False)


def base_of(n):
    while is_view(n):
        n = n.args[0]
    return n


def is_source(n):
    """Returns whether a node needs no value: an input, or a constant that the graph makes."""
    return n.op in ("placeholder", "get_attr") or not n.all_input_nodes


def closure(roots):
    seen, stack = set(), [r for r in roots if r is not None]
    while stack:
        n = stack.pop()
        if n not in seen:
            seen.add(n)
            stack += n.all_input_nodes
    return seen


# ---- which graph computes a node, and what is kept for later ones ----


def is_cheap(n):
    """Returns whether a partition may compute a node a second time: it works on each element by itself."""
    return n.op == "call_function" and n.target is not operator.getitem and (
        torch.Tag.pointwise in getattr(n.target, "tags", ()) or n.target in COPIES
    )


class Splitter:
    """partition: "default" keeps whatever the backward reads of the forward's values; "min-cut" keeps the fewest bytes
    from which cheap operations compute those again."""

    def __init__(self, part, gpu, partition="default"):
        self.part = part
        self.gm, self.kind, self.constants = trace(part, gpu)
        self.nodes = list(self.gm.graph.nodes)
        self.at = {n: i for i, n in enumerate(self.nodes)}
        flat = torch.utils._pytree.tree_leaves(self.nodes[-1].args[0], is_leaf=lambda v: v is None)
        self.y, grads = flat[0].args[0], flat[1:]  # without the copy that tracing wants at the end
        names = [None, *[None] * (len(part.inputs) + len(part.constants)), *part.parameters]
        self.dx = grads[0]
        self.dw = {n: g for n, g in zip(names, grads) if n is not None and g is not None}
        if self.dx is None:
            raise ExportError(f"{part.where or part.name}: its output does not depend on its input")
        self.free = self.find_free()
        self.stage = self.assign_stages()
        self.again = self.find_again() if partition == "min-cut" else set()
        self.homes = self.find_homes()

    def find_free(self):
        """Returns the nodes that need no value of another graph: sources, and what is made of the unit's inputs and
        of constants alone, such as a mask."""
        free, made = set(), {n for n, kind in self.kind.items() if kind[0] == "input"}
        for n in self.nodes:
            if is_source(n):
                free |= {n} if self.kind.get(n, ("constant",))[0] in ("input", "constant") else set()
            elif free.issuperset(n.all_input_nodes) and not made.isdisjoint(n.all_input_nodes):
                free.add(n)
                made.add(n)
        return free | {n for n in self.nodes if is_source(n)}

    def assign_stages(self):
        """Returns 0, 1 or 2 for nodes that F, I or W computes. Views and free nodes are computed where they are
        read."""
        forward = closure([self.y])
        inputs = closure([self.dx]) - forward
        weights = closure(self.dw.values()) - forward - inputs
        # W cannot read weights, so I computes what reads them. An operation with several results of which I reads
        # one is I's, too.
        own = {n for n, kind in self.kind.items() if kind[0] in ("w", "frozen")}
        moved = {
            n
            for n in weights
            if not is_view(n) and n not in self.free and any(base_of(a) in own for a in n.all_input_nodes)
        }
        moved |= {n for n in weights if n.target is operator.getitem and n.args[0] in inputs}
        inputs |= closure(moved) - forward
        weights -= inputs
        stage = {}
        for number, nodes in enumerate((forward, inputs, weights)):
            stage |= {n: number for n in nodes if n not in self.free and n.op != "output"}
        results = [n for n in self.nodes if n in stage and n.target is operator.getitem and not is_view(n)]
        return stage | {n: stage[n.args[0]] for n in results}

    def bases_of_inputs(self, n):
        return {base_of(a) for a in n.all_input_nodes} - self.free

    def read_of_forward(self):
        """Returns the forward's nodes that the backward reads."""
        later = [n for n, s in self.stage.items() if s > 0 and not is_view(n)]
        found = {b for n in later for b in self.bases_of_inputs(n)}
        found |= {base_of(n) for n in (self.dx, *self.dw.values())} - self.free
        return {n for n in found if self.stage[n] == 0}

    def find_again(self):
        """Returns the forward's nodes that I computes again."""
        read, network = self.read_of_forward(), networkx.DiGraph()
        network.add_nodes_from(["have", "want"])
        x = next((n for n, kind in self.kind.items() if kind[0] == "x"), None)
        for n, s in self.stage.items():
            if s > 0 or is_view(n) or not isinstance(value(n), torch.Tensor):
                continue
            network.add_edge((n, "in"), (n, "out"), capacity=size(n))
            if not is_cheap(n):
                network.add_edge("have", (n, "in"))
            for a in self.bases_of_inputs(n) | ({x} & {base_of(a) for a in n.all_input_nodes}):
                if is_cheap(n):
                    network.add_edge((a, "out"), (n, "in"))
            if n in read:
                network.add_edge((n, "out"), "want")
        if x in [a for n, s in self.stage.items() if s > 0 for a in map(base_of, n.all_input_nodes)]:
            network.add_edge((x, "out"), "want")
        network.add_edge("have", (x, "in"))
        network.add_edge((x, "in"), (x, "out"), capacity=size(x))
        have, _ = networkx.minimum_cut(network, "have", "want")[1]
        kept = {n for n in self.stage if (n, "in") in have and (n, "out") not in have}
        again, stack = set(), list(read - kept)
        while stack:
            n = stack.pop()
            if n not in again:
                again.add(n)
                stack += self.bases_of_inputs(n) - kept
        return again

    def made_by(self, n):
        """Returns the last graph that computes the value of a node."""
        return 1 if base_of(n) in self.again else self.stage[base_of(n)]

    def crossings(self):
        """Returns what each graph reads of earlier ones, as pairs (reading graph, node)."""
        pairs = [(s, a) for n, s in self.stage.items() if not is_view(n) for a in n.all_input_nodes]
        pairs += [(1, a) for n in self.again for a in n.all_input_nodes]
        pairs += [(1, self.dx), *[(2, d) for d in self.dw.values()]]
        return [(s, a) for s, a in pairs if base_of(a) not in self.free and self.made_by(a) < s]

    def find_homes(self):
        """Returns, for each node that crosses, the node that is kept for it: its base, or, where only small
        pieces of that are read, the piece."""
        read = collections.Counter()
        crossing = {a for _, a in self.crossings()}
        for a in crossing:
            read[base_of(a)] += size(a)
        return {a: base_of(a) if size(base_of(a)) <= read[base_of(a)] else self.piece(a) for a in crossing}

    @staticmethod
    def piece(a):
        """Returns the view closest to the base that is no larger than a."""
        n = a
        while is_view(n) and isinstance(value(n.args[0]), torch.Tensor) and size(n.args[0]) <= size(a):
            n = n.args[0]
        return n

    def kept_of(self, stage):
        """Returns the nodes of a stage that later ones read, in order."""
        homes = {self.homes[a] for _, a in self.crossings() if self.made_by(a) == stage}
        return sorted(homes, key=self.at.get)

    # ---- building ----

    def is_product(self, n):
        whole = all(size(m) == size(n) for m in self.chain(n))
        return (
            base_of(n).target is aten.mm.default
            and size(base_of(n)) == size(n)
            and whole
            and value(n).is_contiguous()
        )

    def is_y(self, n):
        """Returns whether y has the value of n, with the same elements in the same order."""
        v, y = value(n), value(self.y)
        same = (
            v.shape == y.shape and v.is_contiguous() and y.is_contiguous() and base_of(self.y) is base_of(n)
        )
        return same and all(size(m) == size(self.y) and value(m).is_contiguous() for m in self.chain(self.y))

    @staticmethod
    def chain(n):
        while is_view(n):
            yield n
            n = n.args[0]

    def build(self, stage, outputs, kept):
        """Returns the graph of a stage. outputs: pairs (kind, node). kept: what each kept node is, by
        node."""
        graph, copies, inputs = fx.Graph(), {}, {}

        def enter(n, kind):
            if n not in inputs:
                inputs[n] = kind
            return n

        def want(n):
            """Lists the nodes that n needs here, itself last."""
            order, stack = [], [(n, False)]
            while stack:
                m, done = stack.pop()
                if m in wanted:
                    continue
                if done:
                    wanted.add(m)
                    order.append(m)
                    continue
                stack.append((m, True))
                if m in self.kind:
                    enter(m, self.kind[m])
                elif m in kept and self.made_by(m) < stage:
                    enter(m, kept[m])
                else:
                    assert m in self.free or is_view(m) or stage in (self.stage[m], self.made_by(m)), (stage, m)
                    stack += [(a, False) for a in m.all_input_nodes]
            return order

        wanted, order = set(), []
        for _, n in outputs:
            order += want(n)
        for n in sorted(inputs, key=self.at.get):
            copies[n] = graph.placeholder(n.name)
            copies[n].meta["val"] = self.as_kept(n) if n in kept else value(n)
        flop = 0
        for n in sorted(order, key=self.at.get):
            if n not in copies:
                copies[n] = graph.node_copy(n, lambda m: copies[m])
                flop += flop_of(n)
        results = []
        for kind, n in outputs:
            results.append(self.fresh(graph, n, copies[n], results, inputs, kind[0] in ("stash", "extra")))
        graph.output(tuple(results))
        graph.eliminate_dead_code()
        graph.lint()
        placeholders = sorted(inputs, key=self.at.get)
        return Graph(
            fx.GraphModule(self.gm, graph),
            [inputs[n] for n in placeholders],
            [k for k, _ in outputs],
            {k for k, n in outputs if self.is_product(n)},
            flop,
        )

    def as_kept(self, n):
        return value(n).contiguous() if is_view(n) else value(n)

    def fresh(self, graph, n, copy, results, inputs, strided):
        """Returns an output with memory of its own, dense and in order. strided: the order may be another."""
        base = base_of(n)
        taken = base in inputs or is_source(base) or any(base_of(r) is base_of(copy) for r in results)
        if not taken and value(n).is_contiguous() and size(n) == size(base):
            return copy
        if base is n and not taken:
            return copy if strided else self.clone(graph, n, copy)
        return self.clone(graph, n, copy)

    @staticmethod
    def clone(graph, n, copy):
        new = graph.call_function(aten.clone.default, (copy,), {"memory_format": torch.contiguous_format})
        new.meta["val"] = value(n).contiguous()
        return new

    def split(self):
        stash, extra = self.kept_of(0), self.kept_of(1)
        kept = {n: ("y", None) if self.is_y(n) else None for n in stash}
        stash = [n for n in stash if kept[n] is None]
        kept |= {n: ("stash", i) for i, n in enumerate(stash)} | {
            n: ("extra", i) for i, n in enumerate(extra)
        }
        graphs = {
            "forward": self.build(0, [(("y", None), self.y), *[(kept[n], n) for n in stash]], kept),
            "input": self.build(1, [(("dx", None), self.dx), *[(kept[n], n) for n in extra]], kept),
        }
        if self.dw:
            graphs["weight"] = self.build(2, [(("dw", n), d) for n, d in self.dw.items()], kept)
        read = {k for g in graphs.values() for k in g.inputs} | {("w", n) for n in self.dw}
        return Split(
            graphs,
            [n for n in self.part.inputs if ("input", n) in read],
            {n: t.detach() for n, t in self.constants.items() if ("constant", n) in read},
            {n: p for n, p in self.part.parameters.items() if not read.isdisjoint({("w", n), ("frozen", n)})},
        )


def flop_of(n):
    """Returns the FLOP of a node: a product's, or one for each element that it makes."""
    if n.op != "call_function" or is_view(n) or not isinstance(n.meta.get("val"), torch.Tensor):
        return 0
    products = {aten.mm.default: 0, aten.bmm.default: 0, aten.addmm.default: 1, aten.baddbmm.default: 1}
    if n.target in products:
        return 2 * value(n).numel() * value(n.args[products[n.target]]).shape[-1]
    return math.prod(value(n).shape)


def split(part, model, gpu=False, partition="default"):
    splitter = Splitter(part, gpu, partition)
    result = splitter.split()
    if any(kind[0] == "random" for kind in splitter.kind.values()):
        with evaluating(model):
            plain = Splitter(part, gpu)
        if any(kind[0] == "random" for kind in plain.kind.values()):
            raise ExportError(
                f"{part.where or part.name}: drops values in eval mode too; give F.dropout"
                " training=self.training"
            )
        validate = plain.build(0, [(("y", None), plain.y)], {})
        # Constants that tracing has made have the same names in both modes, but perhaps other values.
        name = {n: n if n in part.constants else f"validate {n}" for n in plain.constants}
        result.constants |= {
            name[n]: plain.constants[n].detach() for k, n in validate.inputs if k == "constant"
        }
        validate.inputs = [(k, name[n] if k == "constant" else n) for k, n in validate.inputs]
        result.graphs["validate"] = validate
        result.inputs += [n for k, n in validate.inputs if k == "input" and n not in result.inputs]
    return result
