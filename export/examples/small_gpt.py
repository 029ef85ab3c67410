"""A GPT in 30 lines of PyTorch, and its export for Pianola: small_gpt.py FOLDER"""

import sys

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.ln1, self.ln2 = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        rows, context, width = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(rows, context, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(rows, context, width))
        return x + self.down(F.gelu(self.up(self.ln2(x))))


class SmallGPT(nn.Module):
    def __init__(self, vocab=256, width=64, heads=4, layers=4, context=32):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocab, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocab)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


if __name__ == "__main__":
    from pianola_export import export

    torch.manual_seed(0)
    export(
        SmallGPT(), layers="blocks", batch={"tokens": torch.zeros(2, 32, dtype=torch.long)}, out=sys.argv[1]
    )
