"""Adapters of low rank (Hu et al. 2021, "LoRA") for a model that is otherwise frozen."""

from torch import nn


class LowRank(nn.Module):
    def __init__(self, base, rank):
        super().__init__()
        self.base, self.down = base, nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)

    def forward(self, x):
        return self.base(x) + 2 * self.up(self.down(x))


def low_rank(model, names, rank=4):
    """Freezes all of a model, and gives its linear layers of these names adapters."""
    model.requires_grad_(False)
    for module in list(model.modules()):
        for name in names:
            if isinstance(getattr(module, name, None), nn.Linear):
                setattr(module, name, LowRank(getattr(module, name), rank))
    return model
