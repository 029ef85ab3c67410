"""GPT-2 in PyTorch on one GPU, with bench.sh's settings: the same shapes, microbatches, precision and optimizer, random
tokens, SDPA, fused AdamW. Prints a line for each way: median milliseconds of a step, tokens/s, utilisation by llm.c's
6 N + 6 L C T, and peak memory.

    torch_gpt2.py [eager|compile ...]     CONTEXT, ROWS, BATCHES, STEPS, PEAK_TFLOPS, LAYERS, WIDTH, HEADS, VOCAB

Without a GPU it runs on the CPU, which only shows that it works.
"""
import os
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F


def env(name, default):
    return type(default)(os.environ.get(name) or default)


CONTEXT, ROWS, BATCHES, STEPS = env("CONTEXT", 1024), env("ROWS", 32), env("BATCHES", 2), env("STEPS", 30)
LAYERS, WIDTH, HEADS, VOCAB = env("LAYERS", 12), env("WIDTH", 768), env("HEADS", 12), env("VOCAB", 50304)
PEAK = env("PEAK_TFLOPS", 989.0)
WARM_UP = 3  # steps that are not timed: compilation, and memory's first use
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        rows, context, _ = x.shape
        q, k, v = (
            part.view(rows, context, HEADS, WIDTH // HEADS).transpose(1, 2)
            for part in self.qkv(self.ln1(x)).split(WIDTH, dim=2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(rows, context, WIDTH))
        return x + self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh"))


class GPT(nn.Module):
    """GPT-2 with the output layer tied to the token embedding; forward returns the mean loss."""

    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCAB, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks, self.ln = nn.ModuleList(Block() for _ in range(LAYERS)), nn.LayerNorm(WIDTH)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.ln(x), self.wte.weight)
        return F.cross_entropy(logits.view(-1, VOCAB).float(), targets.reshape(-1))


def timed(step):
    """Returns the milliseconds that step() takes on the device."""
    if DEVICE == "cpu":
        began = time.perf_counter()
        step()
        return 1e3 * (time.perf_counter() - began)
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    step()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)


def measure(how):
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    model = GPT().to(DEVICE)
    n = sum(p.numel() for p in model.parameters())
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=3e-4, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0, fused=DEVICE == "cuda"
    )
    run = torch.compile(model) if how == "compile" else model
    tokens = torch.randint(min(VOCAB, 50257), (BATCHES, ROWS, CONTEXT + 1), device=DEVICE)
    loss = None

    def step():
        nonlocal loss
        loss = 0.0
        for b in range(BATCHES):
            with torch.autocast(DEVICE, torch.bfloat16):
                of_batch = run(tokens[b, :, :-1], tokens[b, :, 1:]) / BATCHES
            of_batch.backward()
            loss = loss + of_batch.detach()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    began = time.time()
    for _ in range(WARM_UP):
        step()
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    warm = time.time() - began
    ms = [timed(step) for _ in range(STEPS)]
    median, tokens_per_step = statistics.median(ms), ROWS * CONTEXT * BATCHES
    share = (6 * n + 6 * LAYERS * WIDTH * CONTEXT) * tokens_per_step / median / 1e9
    memory = torch.cuda.max_memory_allocated() / 2**30 if DEVICE == "cuda" else 0
    print(
        f"PyTorch {torch.__version__:12} {how:8} {median:.3f} ms (median; {min(ms):.3f} to {max(ms):.3f}), "
        f"{tokens_per_step / median * 1e3:.0f} tokens/s; "
        + (f"{100 * share / PEAK:.1f} % of {PEAK:g} TFLOP/s" if PEAK else f"{share:.1f} TFLOP/s of an unknown peak")
        + f"; at most {memory:.1f} GiB; last loss {float(loss):.3f}; first steps {warm:.0f} s; N = {n}",
        flush=True,
    )


for how in sys.argv[1:] or ["compile", "eager"]:
    if how not in ("compile", "eager"):
        sys.exit(f"{how}: compile or eager")
    measure(how)
