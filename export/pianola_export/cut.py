"""Cuts a model into parts by running it: the token table, what leads from there to the first layer, each
layer, what leads from the last layer to the output matrix, and what follows the output matrix."""

import contextlib
import dataclasses

import torch
import torch.compiler
from torch import fx
from torch.func import functional_call, functionalize
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree


class ExportError(Exception):
    """A model that cannot be exported. Its text says where the reason is, and what to do."""


def brief(error):
    """Returns an error's type and the first line of its text."""
    reason = str(error).strip().split("\n")[0]
    return f"{type(error).__name__}: {reason}"


def not_traced(where, error):
    """Returns the error of code that PyTorch cannot trace."""
    return ExportError(
        f"{where}: cannot be traced: {brief(error)}; a model's operations may depend on shapes, but not on values"
    )


@dataclasses.dataclass
class Part:
    """A function of one tensor: function(x, *inputs, *constants, *parameters) -> y. where: its module's path, for
    messages. inputs: what else differs from microbatch to microbatch, as it lies in Pianola's memory, by the names in
    a unit's `side`. constants, parameters: by their names in the model, without `where` for a layer."""

    name: str
    where: str
    function: object
    x: torch.Tensor
    inputs: dict
    constants: dict
    parameters: dict


@dataclasses.dataclass
class Cut:
    tokens: torch.Tensor  # the batch's
    table: str  # the token table's name
    output: str  # the output matrix's name
    bias: list  # the name of the output's bias, if it has one; it is the matrix's, with bias for weight
    tied: bool  # the output matrix is the token table
    vocab: int
    width: int
    parts: list  # of Part, or "table", or "output"
    logits: list  # the model's in eval mode, of each batch


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


def dense(t):
    """Returns a copy of a tensor as it lies in Pianola's memory: without gaps, in order."""
    return t.detach().clone(memory_format=torch.contiguous_format)


@contextlib.contextmanager
def evaluating(model):
    modes = {m: m.training for m in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for m, mode in modes.items():
            m.training = mode


def first_of(output):
    return output[0] if isinstance(output, (tuple, list)) else output


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

    def again(self, tensors):
        """Returns the arguments with other tensors, by place."""
        leaves = list(self.leaves)
        for i, t in tensors.items():
            leaves[i] = t
        return pytree.tree_unflatten(leaves, self.spec)


def computing(gm, results):
    """Returns a module that computes some nodes of a graph from the graph's inputs and from constants, and the
    constants by name."""
    graph, copies, constants, wanted, stack = fx.Graph(), {}, {}, set(), list(results)
    while stack:
        n = stack.pop()
        if n not in wanted:
            wanted.add(n)
            stack += n.all_input_nodes
    for n in gm.graph.find_nodes(op="placeholder"):
        copies[n] = graph.placeholder(n.name)
    for n in gm.graph.nodes:
        if n in wanted and n.op == "get_attr":
            constants.setdefault(n.target, getattr(gm, n.target).detach())
            copies[n] = graph.placeholder(n.name)
    names = [n.target for n in gm.graph.nodes if n in wanted and n.op == "get_attr"]
    for n in gm.graph.nodes:
        if n in wanted and n not in copies:
            copies[n] = graph.node_copy(n, lambda m: copies[m])
    graph.output(tuple(copies[n] for n in results))
    return fx.GraphModule(torch.nn.Module(), graph), {n: constants[n] for n in names}


class Cutter:
    """batch: the arguments of a call. varying: the arguments that differ from microbatch to microbatch, by name, the
    tokens first."""

    def __init__(self, model, path, batch, varying):
        self.model, self.path, self.inputs, self.varying = model, path, batch, varying
        self.constants = {n: t for n, t in batch.items() if n not in varying}
        self.layers = self.find_layers()
        self.tokens = next(iter(varying.values())).argument
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

    def run(self, inputs):
        """Returns the model's logits. Raises an ExportError if the model raises anything."""
        try:
            return logits_of(self.model(**inputs))
        except ExportError:
            raise
        except Exception as e:
            raise ExportError(
                f"the model cannot run on the batch, {', '.join(inputs)}: {brief(e)}"
            ) from e

    def observe(self, inputs):
        """Runs the model. Returns the calls of layers, their outputs, what embedding and linear did outside
        of layers, and the logits."""
        calls, outputs, embeddings, linears, versions = [], [], [], [], []

        def keep_version(t, what):
            if isinstance(t, torch.Tensor):
                versions.append((t, t._version, what))

        def before(i, args, kwargs):
            call = Call(args, kwargs)
            calls.append((i, call))
            for j in call.places:
                keep_version(call.leaves[j], f"{self.path}.{i}: its argument {call.names[j]} is")

        def after(i, output):
            outputs.append(output)
            linears.clear()
            keep_version(first_of(output), f"{self.path}.{i}: its output is")

        def embedding(tokens, weight):
            embeddings.append((tokens, self.names.get(id(weight)), weight))

        def linear(x, weight, bias):
            linears.append((x, self.names.get(id(weight)), weight, self.names.get(id(bias))))

        with torch.no_grad(), compiling(), self.hooks(before, after), Watch(embedding, linear):
            logits = self.run(inputs)
        if [i for i, _ in calls] != list(range(len(self.layers))):
            raise ExportError(
                f"the layers of {self.path} run in the order {[i for i, _ in calls]}; each must run once, "
                "in the order of the list"
            )
        for t, version, what in versions:
            if t._version != version:
                raise ExportError(
                    f"{what} changed in place after it is read or made; write the change as an operation"
                    " that makes another tensor, such as x = x + y, inside a layer"
                )
        return [c for _, c in calls], outputs, embeddings, linears, logits

    def find_ends(self):
        """Finds the token table, and the output matrix: their numbers among the calls, and their names."""
        _, _, embeddings, linears, self.logits = self.seen
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
        self.bias = [bias] if bias == self.output.removesuffix("weight") + "bias" and not self.tied else []

    def counted(self, number, replace):
        """Returns a function for Watch that replaces the result of call `number`."""
        self.count = -1

        def see(*args):
            self.count += 1
            return replace(*args) if self.count == number else None

        return see

    def outside(self, name, replace, x, misread):
        """Returns the part that the model computes, outside of its layers, from a tensor x. replace(x): a context
        in which the model computes with x, and with NaN in place of all that the part must not read. misread:
        the error if the part reads that. Returns None if the part computes nothing."""
        constants = self.constants | self.buffers
        ids, x = [*self.varying, *self.constants], dense(x)

        def function(x, *rest):
            inputs, rest = self.arguments(rest[: len(ids)]), rest[len(ids) :]
            values = dict(zip([*self.buffers, *self.outer], rest))
            try:
                with replace(x):
                    return logits_of(functional_call(self.model, values, (), dict(zip(ids, inputs))))
            except Reached as e:
                return e.tensor

        read = dense(x)
        version = read._version
        with torch.no_grad():
            y = function(read, *self.stored().values(), *constants.values(), *self.outer.values())
        if y.isnan().any():
            raise ExportError(misread)
        if read._version != version:
            return Part(
                name, "", lambda x, *rest: function(x.clone(), *rest), x, self.stored(), constants, self.outer
            )
        return None if same(y, read) else Part(name, "", function, x, self.stored(), constants, self.outer)

    def stored(self):
        return {v.side: v.values for v in self.varying.values()}

    def arguments(self, values):
        """Returns the arguments of a call: those that differ, from what lies in memory, then the rest as it is."""
        differ = [v.as_argument(t) for v, t in zip(self.varying.values(), values)]
        return [*differ, *values[len(differ) :]]

    @contextlib.contextmanager
    def passing(self, x):
        """Lets the last layer return x. All else that layers return is NaN."""
        own = [vars(layer).get("forward") for layer in self.layers]
        hide = lambda t: x.new_full(t.shape, torch.nan) if t.is_floating_point() else t
        for layer, output in zip(self.layers, self.seen[1]):
            made = pytree.tree_map_only(torch.Tensor, hide, output)
            if layer is self.layers[-1]:
                made = (x, *made[1:]) if isinstance(made, (tuple, list)) else x
            layer.forward = lambda *_, made=made, **__: made
        try:
            yield
        finally:
            for layer, forward in zip(self.layers, own):
                del layer.forward
                if forward:
                    layer.forward = forward

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

    def layer(self, i, call, made):
        """made: what trace_sides returns for this layer."""
        layer, where, (compute, computed, more) = self.layers[i], f"{self.path}.{i}", made
        buffers, parameters = dict(layer.named_buffers()), dict(layer.named_parameters())
        sides = {j: call.leaves[j] for j in call.places[1:] if j not in computed}
        trained = [j for j, t in sides.items() if t.requires_grad]
        if trained:
            raise ExportError(
                f"{where}: its argument {call.names[trained[0]]} needs a gradient; only one tensor may flow from "
                "layer to layer"
            )

        def function(x, *rest):
            inputs, rest = rest[: len(self.varying)], rest[len(self.varying) :]
            more_values, rest = rest[: len(more)], rest[len(more) :]
            tensors = dict(zip(computed, compute(*inputs, *more_values))) | dict(zip(sides, rest))
            args, kwargs = call.again({call.places[0]: x} | tensors)
            values = dict(zip([*buffers, *parameters], rest[len(sides) :]))
            return first_of(functional_call(layer, values, tuple(args), kwargs))

        constants = {f"inputs {n}": t for n, t in more.items()}
        constants |= {f"argument {call.names[j]}": t for j, t in sides.items()} | buffers
        x = dense(call.leaves[call.places[0]])
        return Part("block", where, function, x, self.stored(), constants, parameters)

    def trace_sides(self, calls):
        """Traces what layers read besides x, from the inputs that differ from microbatch to microbatch. Returns, for
        each layer, a module that computes the arguments which depend on those, the arguments' places, and the
        constants that the module reads after the inputs."""
        first, where, places = [c.places[0] for c in calls], ["the model"], []

        def sides(*values):
            found = []
            places.clear()

            def before(i, args, kwargs):
                where.append(f"{self.path}.{i}")
                leaves = Call(args, kwargs).leaves
                for j, v in enumerate(leaves):
                    if isinstance(v, torch.Tensor) and j != first[i]:
                        found.append(v)
                        places.append((i, j))

            inputs = dict(zip(self.varying, self.arguments(values))) | self.constants
            with torch.no_grad(), self.hooks(before, lambda *_: where.pop() and None):
                self.model(**inputs)
            return found

        try:
            with compiling():
                trace = make_fx(functionalize(sides), tracing_mode="fake", _allow_non_fake_inputs=True)
                gm = trace(*self.stored().values())
        except Exception as e:
            raise not_traced(where[-1], e) from e
        depends = set(gm.graph.find_nodes(op="placeholder"))
        for n in gm.graph.nodes:
            if not depends.isdisjoint(n.all_input_nodes):
                depends.add(n)
        results = dict(zip(places, list(gm.graph.nodes)[-1].args[0], strict=True))
        made = []
        for i, call in enumerate(calls):
            computed = [j for j in call.places[1:] if results.get((i, j)) in depends]
            if {j for k, j in places if k == i} != set(call.places[1:]):
                raise ExportError(f"{self.path}.{i}: gets other arguments when the model is traced; please report it")
            compute, constants = computing(gm, [results[i, j] for j in computed])
            self.check_computed(i, [call.names[j] for j in computed], constants)
            made.append((compute, computed, constants))
        return made

    def check_computed(self, i, names, constants):
        """Refuses arguments that are made of the inputs and of parameters: these may be trained."""
        for n, p in self.model.named_parameters():
            if p.requires_grad and any(t.data_ptr() == p.data_ptr() for t in constants.values()):
                raise ExportError(
                    f"{self.path}.{i}: its argument {', '.join(names)} depends on the tokens or the inputs, and on the"
                    f" trained parameter {n}; only one tensor may flow from layer to layer: use {n} inside the layer"
                )

    def cut(self):
        self.seen = self.observe(self.inputs)
        calls, outputs, embeddings, linears, _ = self.seen
        self.find_ends()
        x = None
        for call, output in zip(calls, outputs):
            call.take_first(x)
            x = first_of(output)
        self.first = calls[0].places[0]
        made = self.trace_sides(calls)
        table = embeddings[self.table_at][2]
        looked_up = F.embedding(self.tokens, table).detach()
        to_output = linears[self.output_at][0]
        parts = [
            "table",
            self.outside("embed", self.before_layers, looked_up, "embed: makes NaN"),
            *[self.layer(i, *both) for i, both in enumerate(zip(calls, made))],
            self.outside(
                "head",
                lambda x: self.after_layers(x, lambda h, *_: reach(h)),
                x,
                "head: reads more than the last layer's output, such as other layers' outputs; only one tensor"
                " may flow from layer to layer",
            ),
            "output",
        ]
        made = F.linear(to_output, *[self.model.get_parameter(n) for n in (self.output, *self.bias)])
        shape = x.shape
        add_bias = lambda x: lambda _, __, b: x if b is None or self.bias else x + b
        parts.append(
            self.outside(
                "logits",
                lambda x: self.after_layers(x.new_full(shape, torch.nan), add_bias(x)),
                made,
                "logits: depend on the output of the layers in other ways than through the output matrix, as with an"
                " adapter; export without the adapter, or merge it into the matrix",
            )
        )
        return Cut(
            self.tokens,
            self.table,
            self.output,
            self.bias,
            self.tied,
            self.logits.shape[-1],
            table.shape[1],
            [p for p in parts if p is not None],
            [self.evaluated(batch) for batch in (self.inputs, self.turned())],
        )

    def turned(self):
        """Returns the batch with the inputs that differ in another order."""
        return self.inputs | {n: v.turned().argument for n, v in self.varying.items()}

    def evaluated(self, batch):
        with torch.no_grad(), compiling(), evaluating(self.model):
            return self.run(batch).detach()


def cut(model, layers, batch, varying):
    return Cutter(model, layers, batch, varying).cut()
