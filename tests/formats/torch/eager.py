"""Trains a PyTorch model on Pianola's microbatches, as data.c draws them, with AdamW."""

import itertools

import torch

MASK = (1 << 64) - 1


def made(make):
    """Makes a model with the same random weights each time."""
    torch.manual_seed(0)
    model = make()
    with torch.no_grad():  # norms and biases that are not trivial
        for p in model.parameters():
            if p.dim() == 1:
                p.add_(0.1 * torch.randn(p.shape))
    return model


def host_hash(a, b):
    """runtime/store/hash.h"""
    z = (a + (b + 1) * 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def shuffled(place, n, key):
    """The item at a place of the permutation of runtime/store/data.c."""
    half = 1
    while half < 32 and n > 1 << 2 * half:
        half += 1
    mask = (1 << half) - 1
    while True:
        left, right = place >> half, place & mask
        for i in range(8):
            left, right = right, left ^ (host_hash(host_hash(key, i), right) & mask)
        place = left << half | right
        if place < n:
            return place


def microbatches(data, context, rows, seed=1, labels=None, inputs={}):
    """Yields the tokens and targets of each microbatch of a training on tokens, or on a file of bytes. labels: other
    targets. inputs: what the model reads besides the tokens, by name, with a row for each token: also yields these
    of each microbatch."""
    if not isinstance(data, torch.Tensor):
        data = torch.frombuffer(bytearray(open(data, "rb").read()), dtype=torch.uint8).long()
    labels = data if labels is None else labels
    n = (len(data) - 1) // context
    for first in itertools.count(0, rows):
        at = [shuffled(k % n, n, host_hash(seed, k // n)) * context for k in range(first, first + rows)]
        cut = lambda t, shift=0: torch.stack([t[i + shift : i + shift + context] for i in at])
        yield cut(data), cut(labels, 1), *([{n: cut(t) for n, t in inputs.items()}] if inputs else [])


def train(model, data, steps, batches, lr, betas=(0.9, 0.999)):
    """Trains with AdamW without decay. Returns each step's loss: the mean over the targets of all its
    microbatches, without negative targets."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, betas=betas, eps=1e-8, weight_decay=0.0)
    losses = []
    for _ in range(steps):
        step = list(itertools.islice(data, batches))
        count, total = sum(int((targets >= 0).sum()) for _, targets, *_ in step), 0.0
        for tokens, targets, *inputs in step:
            out = model(tokens, **dict(*inputs))
            out = getattr(out, "logits", out).flatten(0, 1)
            loss = (
                torch.nn.functional.cross_entropy(out, targets.flatten(), ignore_index=-100, reduction="sum")
                / count
            )
            loss.backward()
            total += loss.item()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(total)
    return losses
