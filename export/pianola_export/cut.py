"""Cuts a model into parts by running it: the token table, what leads from there to the first layer, each
layer, what leads from the last layer to the output matrix, and what follows the output matrix."""

import contextlib
import dataclasses

import torch
import torch.compiler
from torch.func import functional_call
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree


class ExportError(Exception):
    """A model that cannot be exported. Its text says where the reason is, and what to do."""


@dataclasses.dataclass
class Part:
    """A function of one tensor: function(x, *constants, *parameters) -> y. where: its module's path, for
    messages. constants, parameters: by their names in the model, without `where` for a layer."""

    name: str
    where: str
    function: object
    x: torch.Tensor
    constants: dict
    parameters: dict


@dataclasses.dataclass
class Cut:
    table: str  # the token table's name
    output: str  # the output matrix's name
    biased: bool  # the output layer adds a bias, which has the matrix's name but for its end
    tied: bool  # the output matrix is the token table
    vocab: int
    width: int
    parts: list  # of Part, or "table", or "output"


def bound(args, kwargs, *names):
    """Returns a call's arguments of these names, by position or by name; None where there is none."""
    return [args[i] if i < len(args) else kwargs.get(name) for i, name in enumerate(names)]


class Watch(TorchFunctionMode):
    """Shows calls of embedding and linear to functions, which return the call's result, or None to let it
    happen."""

    def __init__(self, embedding=lambda *_: None, linear=lambda *_: None):
        super().__init__()
        self.embedding, self.linear = embedding, linear

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs, result = kwargs or {}, None
        if function is F.embedding:
            result = self.embedding(*bound(args, kwargs, "input", "weight"))
        elif function is F.linear:
            result = self.linear(*bound(args, kwargs, "input", "weight", "bias"))
        return function(*args, **kwargs) if result is None else result


@contextlib.contextmanager
def compiling():
    """Lets models know that they are traced: many ask before they branch on values."""
    was, torch.compiler._is_compiling_flag = torch.compiler._is_compiling_flag, True
    try:
        yield
    finally:
        torch.compiler._is_compiling_flag = was


class Reached(Exception):
    """Ends a run of the model at a tensor."""

    def __init__(self, tensor):
        super().__init__()
        self.tensor = tensor


def reach(tensor):
    raise Reached(tensor)


def same(a, b):
    """Returns whether two tensors are one, perhaps through a view that changes nothing."""
    return a.shape == b.shape and a.stride() == b.stride() and a.data_ptr() == b.data_ptr()


def logits_of(output):
    for value in (output, getattr(output, "logits", None), getattr(output, "prediction_logits", None)):
        if isinstance(value, torch.Tensor):
            return value
    if isinstance(output, (tuple, list)) and output and isinstance(output[0], torch.Tensor):
        return output[0]
    raise ExportError(
        f"the model returns a {type(output).__name__} without logits; wrap it in a module that returns "
        "one tensor, batch x sequence x vocabulary"
    )


class Call:
    """A layer's call: its arguments, and where the tensors among them are."""

    def __init__(self, args, kwargs):
        self.leaves, self.spec = pytree.tree_flatten((list(args), dict(kwargs)))
        self.places = [i for i, v in enumerate(self.leaves) if isinstance(v, torch.Tensor)]
        paths = pytree.tree_flatten_with_path((list(args), dict(kwargs)))[0]
        self.names = [pytree.keystr(path[1:]).strip("[]'") for path, _ in paths]

    def take_first(self, x):
        """Puts the place of x before the others'. x: None for the first layer, whose x is its first fp
        tensor."""
        for i in self.places:
            if same(self.leaves[i], x) if x is not None else self.leaves[i].is_floating_point():
                self.places = [i] + [j for j in self.places if j != i]
                return self
        raise ExportError(
            "a layer does not take the output of the layer before it as it is; what stands between "
            "layers cannot be exported: move it into one of them"
        )

    def sides(self):
        return {self.names[i]: self.leaves[i] for i in self.places[1:]}

    def names_of_sides(self):
        return [self.names[i] for i in sorted(self.places[1:])]

    def again(self, tensors):
        leaves = list(self.leaves)
        for i, t in zip(self.places, tensors):
            leaves[i] = t
        return pytree.tree_unflatten(leaves, self.spec)


class Cutter:
    def __init__(self, model, path, inputs):
        self.model, self.path, self.inputs = model, path, inputs
        self.layers = self.find_layers()
        self.tokens = next((v for v in inputs.values() if not v.is_floating_point() and v.dim() == 2), None)
        if self.tokens is None:
            raise ExportError(
                "the batch has no tokens: an integer tensor, rows x context. Models of other inputs "
                "cannot be exported yet"
            )
        self.names = {id(p): n for n, p in model.named_parameters()}
        inside = {id(p) for layer in self.layers for p in layer.parameters()}
        self.outer = {n: p for n, p in model.named_parameters() if id(p) not in inside}
        self.buffers = {n: b for n, b in model.named_buffers() if not n.startswith(path + ".")}

    def find_layers(self):
        try:
            module = self.model.get_submodule(self.path)
        except AttributeError as e:
            raise ExportError(
                f"layers = {self.path!r}: {e}; name the list of the model's repeated layers"
            ) from e
        if not isinstance(module, (torch.nn.ModuleList, torch.nn.Sequential)) or len(module) == 0:
            raise ExportError(
                f"layers = {self.path!r} is a {type(module).__name__}; name the ModuleList, or the "
                "Sequential, that has the model's repeated layers"
            )
        return list(module)

    @contextlib.contextmanager
    def hooks(self, before, after):
        """Calls before(i, args, kwargs) and after(i, output) around layer i."""
        handles = []
        for i, layer in enumerate(self.layers):
            handles.append(
                layer.register_forward_pre_hook(lambda m, a, k, i=i: before(i, a, k), with_kwargs=True)
            )
            handles.append(layer.register_forward_hook(lambda m, a, o, i=i: after(i, o)))
        try:
            yield
        finally:
            for h in handles:
                h.remove()

    def observe(self, inputs):
        """Runs the model. Returns the calls of layers, their outputs, what embedding and linear did outside
        of layers, and the logits."""
        calls, outputs, embeddings, linears = [], [], [], []

        def before(i, args, kwargs):
            calls.append((i, Call(args, kwargs)))

        def after(i, output):
            outputs.append(output)
            linears.clear()

        def embedding(tokens, weight):
            embeddings.append((tokens, self.names.get(id(weight)), weight))

        def linear(x, weight, bias):
            linears.append((x, self.names.get(id(weight)), weight, self.names.get(id(bias))))

        with torch.no_grad(), compiling(), self.hooks(before, after), Watch(embedding, linear):
            logits = logits_of(self.model(**inputs))
        if [i for i, _ in calls] != list(range(len(self.layers))):
            raise ExportError(
                f"the layers of {self.path} run in the order {[i for i, _ in calls]}; each must run once, "
                "in the order of the list"
            )
        return [c for _, c in calls], outputs, embeddings, linears, logits

    def find_ends(self):
        """Finds the token table, and the output matrix: their numbers among the calls, and their names."""
        _, outputs, embeddings, linears, self.logits = self.seen
        self.tuples = isinstance(outputs[-1], (tuple, list))
        at = [
            i
            for i, (t, name, _) in enumerate(embeddings)
            if name and t.shape == self.tokens.shape and torch.equal(t, self.tokens)
        ]
        if not at:
            raise ExportError(
                "no embedding reads the batch's tokens; the model's first operation must be one, with the "
                "token table as its weight"
            )
        self.table_at = at[0]
        self.table, table = embeddings[self.table_at][1:]
        vocab = self.logits.shape[-1]
        at = [i for i, (_, name, weight, _) in enumerate(linears) if name and weight.shape[0] == vocab]
        if not at:
            raise ExportError(
                "no linear layer after the last layer makes the logits; the output must be an nn.Linear, "
                "or torch.nn.functional.linear, whose weight is a parameter"
            )
        self.output_at = at[-1]
        _, self.output, weight, bias = linears[self.output_at]
        if table.shape[0] != vocab:
            raise ExportError(
                f"the token table {self.table} has {table.shape[0]} tokens, but the logits have {vocab} "
                "columns; give both the same vocabulary"
            )
        self.tied = weight.data_ptr() == table.data_ptr()
        self.biased = (
            not self.tied and bias is not None and bias == self.output.removesuffix("weight") + "bias"
        )

    def counted(self, number, replace):
        """Returns a function for Watch that replaces the result of call `number`."""
        self.count = -1

        def see(*args):
            self.count += 1
            return replace(*args) if self.count == number else None

        return see

    def outside(self, name, replace, x):
        """Returns the part that the model computes outside of its layers from the tensor that `replace` puts
        in."""
        constants = {k: v for k, v in self.inputs.items()} | self.buffers
        ids = list(self.inputs)

        def function(x, *rest):
            inputs, rest = rest[: len(ids)], rest[len(ids) :]
            values = dict(zip([*self.buffers, *self.outer], rest))
            try:
                with replace(x):
                    return logits_of(functional_call(self.model, values, (), dict(zip(ids, inputs))))
            except Reached as e:
                return e.tensor

        with torch.no_grad():
            y = function(x, *constants.values(), *self.outer.values())
        if same(y, x):
            return None
        return Part(name, "", function, x.detach().clone(), constants, self.outer)

    @contextlib.contextmanager
    def passing(self, x):
        """Lets every layer return x."""
        for layer in self.layers:
            layer.forward = lambda *_, **__: (x,) if self.tuples else x
        try:
            yield
        finally:
            for layer in self.layers:
                del layer.forward

    def before_layers(self, x):
        stack = contextlib.ExitStack()
        stack.enter_context(self.hooks(lambda i, a, k: reach(Call(a, k).leaves[self.first]), lambda *_: None))
        stack.enter_context(Watch(embedding=self.counted(self.table_at, lambda *_: x)))
        return stack

    def after_layers(self, x, replace):
        def restart(*_):
            self.count = -1

        stack = contextlib.ExitStack()
        stack.enter_context(self.passing(x))
        stack.enter_context(self.hooks(lambda *_: None, restart))
        stack.enter_context(Watch(linear=self.counted(self.output_at, replace)))
        return stack

    def layer(self, i, call):
        layer, where = self.layers[i], f"{self.path}.{i}"
        buffers, parameters = dict(layer.named_buffers()), dict(layer.named_parameters())
        sides = call.sides()
        trained = [n for n, t in sides.items() if t.requires_grad]
        if trained:
            raise ExportError(
                f"{where}: its argument {trained[0]} needs a gradient; only one tensor may flow from "
                "layer to layer"
            )

        def function(x, *rest):
            args, kwargs = call.again([x, *rest[: len(sides)]])
            values = dict(zip([*buffers, *parameters], rest[len(sides) :]))
            y = functional_call(layer, values, tuple(args), kwargs)
            return y[0] if isinstance(y, (tuple, list)) else y

        x = call.leaves[call.places[0]].detach().clone()
        return Part("block", where, function, x, sides | buffers, parameters)

    def check_sides(self, calls):
        """Checks that what layers read besides x does not depend on the tokens, by tracing the model from
        them."""
        first, where = [c.places[0] for c in calls], ["the model"]

        def sides(tokens):
            found = []

            def before(i, args, kwargs):
                where.append(f"{self.path}.{i}")
                leaves = Call(args, kwargs).leaves
                found.extend(v for j, v in enumerate(leaves) if isinstance(v, torch.Tensor) and j != first[i])

            with torch.no_grad(), self.hooks(before, lambda *_: where.pop() and None):
                self.model(**{k: tokens if v is self.tokens else v for k, v in self.inputs.items()})
            return found

        try:
            with compiling():
                graph = make_fx(sides, tracing_mode="fake", _allow_non_fake_inputs=True)(self.tokens).graph
        except Exception as e:
            reason = str(e).strip().split("\n")[0]
            raise ExportError(
                f"{where[-1]}: cannot be traced: {type(e).__name__}: {reason}; what a model computes may "
                "depend on shapes, but not on values"
            ) from e
        depends = {next(iter(graph.nodes))}
        for n in graph.nodes:
            if not depends.isdisjoint(n.all_input_nodes):
                depends.add(n)
        names = [(i, name) for i, c in enumerate(calls) for name in c.names_of_sides()]
        results = list(graph.nodes)[-1].args[0]
        for (i, name), n in zip(names, results, strict=True):
            if n in depends:
                raise ExportError(
                    f"{self.path}.{i}: its argument {name} depends on the tokens; only one tensor may flow "
                    "from layer to layer, and what else a layer reads must be constant"
                )

    def cut(self):
        self.seen = self.observe(self.inputs)
        calls, outputs, embeddings, linears, _ = self.seen
        self.find_ends()
        x = None
        for call, output in zip(calls, outputs):
            call.take_first(x)
            x = output[0] if isinstance(output, (tuple, list)) else output
        self.first = calls[0].places[0]
        self.check_sides(calls)
        table = embeddings[self.table_at][2]
        looked_up = F.embedding(self.tokens, table).detach()
        to_output = linears[self.output_at][0]
        parts = [
            "table",
            self.outside("embed", self.before_layers, looked_up),
            *[self.layer(i, call) for i, call in enumerate(calls)],
            self.outside("head", lambda x: self.after_layers(x, lambda h, *_: reach(h)), x),
            "output",
        ]
        output_layer = self.model.get_parameter(self.output)
        bias = self.model.get_parameter(self.output.removesuffix("weight") + "bias") if self.biased else None
        made = F.linear(to_output, output_layer, bias).detach()
        shape = x.shape
        add_bias = lambda x: lambda _, __, b: x if b is None or self.biased else x + b
        parts.append(
            self.outside("logits", lambda x: self.after_layers(x.new_zeros(shape), add_bias(x)), made)
        )
        return Cut(
            self.table,
            self.output,
            self.biased,
            self.tied,
            self.logits.shape[-1],
            table.shape[1],
            [p for p in parts if p is not None],
        )


def cut(model, layers, inputs):
    return Cutter(model, layers, inputs).cut()
