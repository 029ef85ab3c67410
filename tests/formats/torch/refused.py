"""Models that pianola-export refuses: each error must say where the reason is. Nothing may be written.
refused.py"""

import contextlib
import functools
import io
import os
import pathlib
import re
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "export"), str(ROOT / "export" / "examples")]

import torch
from torch import nn
from torch.nn import functional as F

from judge import expect, finish
from pianola_export import ExportError, command, export
from small_gpt import SmallGPT


class Model(nn.Module):
    """A model of two layers, of which a case replaces parts."""

    def __init__(self, layer=lambda: nn.Linear(16, 16), vocab=32):
        super().__init__()
        self.tokens, self.norm, self.head = nn.Embedding(vocab, 16), nn.LayerNorm(16), nn.Linear(16, 32)
        self.layers = nn.ModuleList(layer() for _ in range(2))

    def forward(self, tokens):
        x = self.tokens(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


class Layer(nn.Module):
    def __init__(self, f, parameters=1):
        super().__init__()
        self.f, self.w = f, nn.ParameterDict(
            {f"m{i}": nn.Parameter(torch.randn(16, 16)) for i in range(parameters)}
        )

    def forward(self, x, *more):
        return self.f(x @ self.w["m0"], *more) + sum(w.sum() for w in self.w.values())


class Odd(nn.Module):
    """A layer with a parameter of another name or shape."""

    def __init__(self, name, *shape):
        super().__init__()
        self.inner = nn.Module()
        self.inner.register_parameter(name, nn.Parameter(torch.randn(*shape)))

    def forward(self, x):
        return x * next(self.parameters()).sum()


class Detached(Odd):
    def forward(self, x):
        return x * next(self.parameters()).detach().sum()


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(8)

    def forward(self, x):
        return self.norm(x)


def plain(f, parameters=1):
    return lambda: Model(lambda: Layer(f, parameters))


class Residual(Model):
    """Every layer reads the first one's input."""

    def forward(self, tokens):
        x = self.tokens(tokens)
        first = x + 1
        for layer in self.layers:
            x = layer(x, first)
        return self.head(self.norm(x))


class Gaining(Model):
    """Reads an input, and another one that it does not use."""

    def forward(self, tokens, gain, unused=None):
        return super().forward(tokens) * gain.reshape(2, -1, 1)


class Hiding(Model):
    """Layers read an input that the model sets, and not their arguments."""

    def __init__(self):
        super().__init__(lambda: Layer(lambda x: x * self.gain))

    def forward(self, tokens, gain):
        self.gain = gain[..., None].clone()
        return super().forward(tokens)


class Between(Model):
    def forward(self, tokens):
        x = self.tokens(tokens)
        for layer in self.layers:
            x = layer(2 * x)
        return self.head(self.norm(x))


class Twice(Model):
    def forward(self, tokens):
        x = self.tokens(tokens)
        for layer in (*self.layers, *self.layers):
            x = layer(x)
        return self.head(self.norm(x))


class OneHot(Model):
    def forward(self, tokens):
        x = F.one_hot(tokens, 32).float() @ self.tokens.weight
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


class NoOutput(Model):
    def forward(self, tokens):
        x = self.tokens(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x) @ self.head.weight.T


class InPlace(Model):
    def forward(self, tokens):
        x = self.tokens(tokens)
        for layer in self.layers:
            x = layer(x)
            x *= 2
        return self.head(x)


class Growing(Model):
    """Layers read a tensor that changes in place between them."""

    def forward(self, tokens):
        x, side = self.tokens(tokens), torch.zeros(16)
        for layer in self.layers:
            side += 1
            x = layer(x, side)
        return self.head(self.norm(x))


class LearnedBias(Model):
    """Layers read a trained tensor of the model besides x."""

    def __init__(self):
        super().__init__(lambda: Layer(torch.add))
        self.biases = nn.Embedding(8, 16)

    def forward(self, tokens):
        x, bias = self.tokens(tokens), self.biases(torch.arange(8))
        for layer in self.layers:
            x = layer(x, bias)
        return self.head(self.norm(x))


class Collecting(Model):
    def forward(self, tokens):
        x, seen = self.tokens(tokens), []
        for layer in self.layers:
            x = layer(x)
            seen.append(x)
        return self.head(self.norm(sum(seen)))


class Adapted(Model):
    """The output matrix has an adapter, which adds 0 at first."""

    def __init__(self):
        super().__init__()
        self.down, self.up = nn.Linear(16, 4, bias=False), nn.Linear(4, 32, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, tokens):
        x = self.tokens(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x) + self.up(self.down(x))


class OutputTwice(Model):
    def forward(self, tokens):
        x = self.tokens(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x) / self.head.weight.norm())


class Numbered(Model):
    """The model sets what its layers read besides their arguments."""

    def __init__(self):
        super().__init__(lambda: Layer(lambda x: x * self.factor))

    def forward(self, tokens):
        x = self.tokens(tokens)
        for i, layer in enumerate(self.layers):
            self.factor = i + 1
            x = layer(x)
        return self.head(self.norm(x))


class Single(nn.Module):
    def forward(self, x):
        return x.float()


class Double(nn.Linear):
    def __init__(self):
        super().__init__(16, 16)

    def forward(self, x):
        return super().forward(x.float()).double()


class Louder(nn.Linear):
    """A layer that computes something else in training mode."""

    def __init__(self):
        super().__init__(16, 16)

    def forward(self, x):
        return super().forward(x) * (2 if self.training else 1)


def shared():
    model = Model()
    model.layers[1].weight = model.layers[0].weight
    return model


def double():
    model = Model(Double)
    model.norm = Single()
    return model


def frozen_part(name):
    def make():
        model = Model()
        model.head.get_parameter(name).requires_grad_(False)
        return model

    return make


def dictionary(model):
    forward = model.forward
    model.forward = lambda tokens: {"scores": forward(tokens)}
    return model


CASES = {
    "a path that is not there": (
        Model,
        "blocks",
        "layers = 'blocks': Model has no attribute `blocks`; name the list",
    ),
    "a module that is no list": (Model, "norm", "layers = 'norm' is a LayerNorm; name the ModuleList"),
    "noise": (
        plain(lambda x: x + torch.randn_like(x)),
        "layers",
        r"layers.0: draws random numbers by .*; call model.eval\(\)",
    ),
    "a branch on values": (
        plain(lambda x: x if x.sum() > 0 else -x),
        "layers",
        "layers.0: cannot be traced: .* not on values",
    ),
    "a shape that depends on values": (
        plain(lambda x: x[x > 0].sum() + x),
        "layers",
        "layers.0: cannot be traced",
    ),
    "a buffer that changes": (lambda: Model(Counting), "layers", "layers.0: cannot be traced: .*mutations"),
    "an operation that the runtime lacks": (
        plain(lambda x: x.topk(16).values),
        "layers",
        "block: its compiled code calls aoti_torch_cpu_topk, which Pianola's runtime",
    ),
    "a tensor made in between": (
        plain(lambda x: x @ torch.linalg.inv(torch.eye(16))),
        "layers",
        "layers.0: cannot be traced: PyTorch finds",
    ),
    "33 parameters": (
        plain(lambda x: x, 33),
        "layers",
        "layers.0: has 33 parameters, but a unit has at most 32",
    ),
    "the tokens' vectors besides x": (
        lambda: Residual(lambda: Layer(torch.add)),
        "layers",
        r"layers.0: its argument 1 depends on the tokens .* and on the trained parameter tokens.weight",
    ),
    "something between layers": (Between, "layers", "what stands between layers cannot be exported"),
    "layers that run twice": (Twice, "layers", r"run in the order \[0, 1, 0, 1\]"),
    "no embedding": (OneHot, "layers", "no embedding reads the batch's tokens"),
    "no linear output": (NoOutput, "layers", "no linear layer after the last layer makes the logits"),
    "another vocabulary": (
        lambda: Model(vocab=40),
        "layers",
        "tokens.weight has 40 tokens, but the logits have 32",
    ),
    "no logits": (lambda: dictionary(Model()), "layers", "returns a dict without logits"),
    "a shared parameter": (shared, "layers", "layers.1: parameter weight is also layers.0's"),
    "a name of one letter": (
        lambda: Model(lambda: Odd("g", 16)),
        "layers",
        "parameter inner.g has a name that cannot be",
    ),
    "three dimensions": (
        lambda: Model(lambda: Odd("cube", 2, 2, 2)),
        "layers",
        "parameter inner.cube has 3 dimensions",
    ),
    "no gradient": (
        lambda: Model(lambda: Detached("scale", 16)),
        "layers",
        "parameter inner.scale gets no gradient",
    ),
    "a tensor that changes between layers": (
        InPlace,
        "layers",
        "layers.0: its output is changed in place after it",
    ),
    "a side that changes": (
        lambda: Growing(lambda: Layer(torch.add)),
        "layers",
        "layers.0: its argument 1 is changed in place",
    ),
    "a layer that changes its input": (
        lambda: Model(lambda: nn.ReLU(inplace=True)),
        "layers",
        "layers.0: its argument 0 is changed in place",
    ),
    "a trained tensor besides x": (
        LearnedBias,
        "layers",
        "biases.weight is trained, and the logits depend on it, but",
    ),
    "outputs of several layers": (Collecting, "layers", "head: reads more than the last layer's output"),
    "an adapter of the output matrix": (
        Adapted,
        "layers",
        "logits: depend on the output of the layers in other ways than through the output matrix",
    ),
    "an output matrix that is read twice": (
        OutputTwice,
        "layers",
        "head: parameter head.weight is also the output matrix's",
    ),
    "a frozen output bias": (frozen_part("bias"), "layers", "head.bias is frozen, but not all of the output"),
    "a frozen output matrix with a trained bias": (
        frozen_part("weight"),
        "layers",
        "head.weight is frozen, but not all of the output",
    ),
    "a number that the model sets for each layer": (
        Numbered,
        "layers",
        r"layers.1: its input differs by .* from what the exported units compute",
    ),
    "another function in training": (
        lambda: Model(Louder),
        "layers",
        "the model's logits in eval mode differ by .* only dropout may differ in training mode",
    ),
    "dropout in eval mode": (
        plain(lambda x: F.dropout(x, 0.1)),
        "layers",
        "layers.0: drops values in eval mode too; .*training=self.training",
    ),
    "a gradient that is no number": (
        plain(lambda x: torch.sqrt((x * 0).square())),
        "layers",
        "layers.0: its output or a gradient is NaN",
    ),
    "double precision": (double, "layers", "layers.0: its output is torch.float64"),
    "a product in double precision": (
        plain(lambda x: (x.double() @ x.double().transpose(1, 2)).float().sum(2, keepdim=True) + x),
        "layers",
        "block_forward: .* tensors that are not fp32 matrices",
    ),
    "many kept tensors": (
        plain(lambda x: functools.reduce(lambda x, _: torch.tanh(x), range(140), x)),
        "layers",
        "layers.0: its forward reads .* tensors of up to . dimensions and makes .*: split the layer",
    ),
    "half precision": (
        lambda: Model().bfloat16(),
        "layers",
        "parameter weight is torch.bfloat16; call model.float",
    ),
}


def error_of(make, layers, folder, **more):
    try:
        export(make(), layers, {"tokens": torch.randint(1, 32, (2, 8))}, folder, quiet=True, **more)
    except ExportError as e:
        return str(e).replace("\n", " ")
    return "no error"


for name, (make, layers, must) in CASES.items():
    if sys.argv[1:] and name not in sys.argv[1:]:
        continue
    with tempfile.TemporaryDirectory() as room:
        torch.manual_seed(0)
        error = error_of(make, layers, f"{room}/model")
        expect(name, bool(re.search(must, error)), error[:500])
        expect(f"{name}: nothing written", not pathlib.Path(f"{room}/model").exists(), "a folder")


MODULE = """
from torch import nn
class Renamed(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.layers = nn.Embedding(32, 16), nn.ModuleList(nn.Linear(16, 16) for _ in range(2))
        self.head = nn.Linear(16, 32)
    def forward(self, words):
        x = self.table(words)
        for layer in self.layers:
            x = layer(2 * x)
        return self.head(x)
number = lambda: 3
"""
COMMANDS = {
    "model.py:Renamed": "what stands between layers cannot be exported",
    "model.py:Other": "model.py: has no function 'Other'; name one that returns the model",
    "model.py:number": "model.py: number returns a int, not a torch.nn.Module",
    "none.py:Renamed": "none.py: no such file",
}
with tempfile.TemporaryDirectory() as room:
    pathlib.Path(f"{room}/model.py").write_text(MODULE)
    for words, must in COMMANDS.items():
        text = io.StringIO()
        with contextlib.redirect_stderr(text):
            code = command.main([f"{room}/{words}", "-o", f"{room}/out"])
        expect(words, code == 2 and must in text.getvalue(), text.getvalue())
        expect(f"{words}: nothing written", not pathlib.Path(f"{room}/out").exists(), "a folder")


def error_of_batch(batch):
    try:
        export(Model(), "layers", batch, "none", quiet=True)
    except ExportError as e:
        return str(e)
    return "no error"


GAIN = torch.rand(2, 8)
INPUTS = {
    "no such argument": (Gaining, {}, {"gain": None}, "input gain: the batch has no such argument, but tokens"),
    "an input of another batch": (Gaining, {"gain": GAIN[:1]}, {"gain": None}, r"input gain has the shape \[1, 8\]"),
    "numbers that do not fit": (Gaining, {"gain": GAIN[:, :7]}, {"gain": None}, "a multiple of 8 numbers, as many as"),
    "half an input": (Gaining, {"gain": GAIN.half()}, {"gain": None}, "input gain is torch.float16, but must be"),
    "integers without a range": (Gaining, {"gain": GAIN.long()}, {"gain": None}, "input gain: name how many values"),
    "integers out of range": (
        Gaining,
        {"gain": torch.full((2, 8), 5)},
        {"gain": 5},
        "gain: has integers from 5 to 5, but must be below 5",
    ),
    "an input that is not read": (
        Gaining,
        {"gain": GAIN, "unused": GAIN},
        {"gain": None, "unused": None},
        "input unused: nothing in the model depends on it",
    ),
    "a word of units": (Gaining, {"seed": GAIN}, {"seed": None}, "input seed: no input can be called so"),
    "a hidden input": (Hiding, {"gain": GAIN}, {"gain": None}, "layers.0: cannot be traced|in reverse order"),
}
for name, (make, more, inputs, must) in INPUTS.items():
    with tempfile.TemporaryDirectory() as room:
        try:
            batch = {"tokens": torch.randint(1, 32, (2, 8))} | more
            export(make(), "layers", batch, f"{room}/model", quiet=True, inputs=inputs)
            error = "no error"
        except ExportError as e:
            error = str(e)
        expect(name, bool(re.search(must, error)), error)
        expect(f"{name}: nothing written", not pathlib.Path(f"{room}/model").exists(), "a folder")
expect("no batch", "batch must have the arguments of a call" in error_of_batch(None), "")
error = error_of_batch({"words": torch.zeros(2, 8, dtype=torch.long)})
expect("another batch", "the model cannot run on the batch, words: TypeError" in error, error)
path, os.environ["PATH"] = os.environ["PATH"], "/nowhere"
error = error_of(Model, "layers", "none")
os.environ["PATH"] = path
expect("no compiler", bool(re.search("(gcc|g[+][+]) is not installed", error)), error)
expect(
    "a machine", "choose one of x86-64, x86-64-v3" in error_of(SmallGPT, "blocks", "none", machine="arm"), ""
)
expect("a device", "choose cpu or cuda" in error_of(SmallGPT, "blocks", "none", device="gpu"), "")
if not torch.cuda.is_available():
    said = error_of(SmallGPT, "blocks", "none", device="cuda")
    expect("no GPU", "--device cuda needs a machine with an NVIDIA GPU and a PyTorch for CUDA" in said, said)
finish()
