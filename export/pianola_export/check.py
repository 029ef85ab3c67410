"""Computes what `pianola check-unit` compares with on the machine that trains: runtime/units/known.h describes the
file."""

import numpy
import torch
from torch.nn import functional as F

from .cut import ExportError, evaluating, logits_of
from .inputs import mixed


def signs(n):
    """Returns known_sign of runtime/units/known.h for the elements below n."""
    return 1.0 - 2.0 * (mixed(1, numpy.arange(n, dtype=numpy.uint64)) & numpy.uint64(1)).astype(numpy.float64)


def summary(gradient):
    """Returns a gradient's norm, and the sum of its elements with signs."""
    g = gradient.detach().double().flatten().numpy()
    return torch.tensor([numpy.sqrt((g * g).sum()), (g * signs(len(g))).sum()], dtype=torch.float32)


def known_values(model, batch, varying, vocab, trained):
    """Returns the tensors of the file of values, for the batch with random tokens. trained: the parameters whose
    gradients it has, by name."""
    name, tokens = next(iter(varying.items()))
    generator = torch.Generator().manual_seed(1)
    drawn = torch.randint(vocab, (2, *tokens.argument.shape), generator=generator)
    known = {"tokens": drawn[0].int().flatten(), "targets": drawn[1].int().flatten()}
    known |= {f"input.{n}": v.values.flatten() for n, v in varying.items() if n != name}
    batch = batch | {name: drawn[0].to(tokens.argument.dtype)}
    with evaluating(model), torch.enable_grad():
        loss = F.cross_entropy(logits_of(model(**batch)).flatten(0, 1), drawn[1].flatten())
        gradients = torch.autograd.grad(loss, list(trained.values())) if trained else ()
    if not bool(loss.isfinite()):
        raise ExportError(f"the model's loss on random tokens is {float(loss)}; correct the model or its weights")
    known |= {f"gradient.{n}": summary(g) for n, g in zip(trained, gradients)}
    return known | {"loss": loss.detach().reshape(1)}
