"""The arguments of a model that differ from microbatch to microbatch: the tokens, and the inputs that a user names."""

import dataclasses

import numpy
import torch

from .cut import ExportError, dense

RESERVED = ("tokens", "targets", "seed", "labels")  # other words of a unit's `side`, and of files beside the text
MOST = 8  # inputs of a model: compiler/script/script_model.c


def mixed(a, b):
    """Returns host_hash of runtime/store/hash.h for an array b."""
    word = lambda n: numpy.uint64(n & (1 << 64) - 1)
    with numpy.errstate(over="ignore"):
        z = word(a) + (b + word(1)) * word(0x9E3779B97F4A7C15)
        z = (z ^ (z >> word(30))) * word(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> word(27))) * word(0x94D049BB133111EB)
        return z ^ (z >> word(31))


@dataclasses.dataclass
class Varying:
    """An argument of the model. side: its name in a unit's `side`. columns: numbers for each token. below: its integers
    are less than this; 0: it has floats."""

    side: str
    argument: torch.Tensor
    columns: int
    below: int

    @property
    def values(self):
        """The argument as it lies in Pianola's memory."""
        return dense(self.argument.float() if self.below == 0 else self.argument.int())

    def as_argument(self, values):
        return values.to(self.argument.dtype)

    def turned(self):
        """Returns the argument with other values: the same in reverse order."""
        argument = self.argument.flip(list(range(min(2, self.argument.dim()))))
        return dataclasses.replace(self, argument=argument)


def find_tokens(batch, inputs):
    """Returns the name of the tokens."""
    for n, t in batch.items():
        integers = not t.is_floating_point() and not t.is_complex() and t.dtype != torch.bool
        if n not in inputs and integers and t.dim() == 2:
            return n
    raise ExportError(
        "the batch has no tokens: an integer tensor, rows x context. Models of other inputs cannot be exported yet"
    )


def check_shape(where, t, rows, context):
    if t.dim() == 0 or t.shape[0] != rows or t.numel() == 0 or t.numel() % (rows * context):
        raise ExportError(
            f"{where} has the shape {list(t.shape)}: its first dimension must be the batch's {rows} rows, and each row"
            f" must have a multiple of {context} numbers, as many as it has tokens; expand or pad it"
        )


def check_integers(where, t, below):
    if not isinstance(below, int) or isinstance(below, bool) or not 0 < below < 2**31:
        raise ExportError(f"{where}: name how many values its integers may have, such as {{'position_ids': 128}}")
    if int(t.min()) < 0 or int(t.max()) >= below:
        raise ExportError(f"{where}: has integers from {int(t.min())} to {int(t.max())}, but must be below {below}")


def make_input(name, t, below, rows, context):
    where = f"input {name}"
    if not name.isidentifier() or not name.isascii() or name in RESERVED:
        raise ExportError(f"{where}: no input can be called so; rename the argument")
    check_shape(where, t, rows, context)
    if t.is_complex() or (t.is_floating_point() and t.dtype != torch.float32):
        raise ExportError(f"{where} is {t.dtype}, but must be torch.float32, torch.bool or integers")
    if t.dtype == torch.float32:
        below = 0
    elif t.dtype == torch.bool:
        below = 2
    else:
        check_integers(where, t, below)
    return Varying(name, t, t.numel() // (rows * context), below)


def find_varying(batch, inputs):
    """Returns the arguments that differ, by their names in the batch, the tokens first."""
    missing = [n for n in inputs if n not in batch]
    if missing:
        raise ExportError(f"input {missing[0]}: the batch has no such argument, but {', '.join(batch)}")
    if len(inputs) > MOST:
        raise ExportError(f"there are {len(inputs)} inputs, but a model has at most {MOST}")
    name = find_tokens(batch, inputs)
    tokens = batch[name]
    rows, context = tokens.shape
    found = {name: Varying("tokens", tokens, 1, int(tokens.max()) + 1)}
    return found | {n: make_input(n, batch[n], below, rows, context) for n, below in inputs.items()}
