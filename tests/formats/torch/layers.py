"""Every layer of the table against PyTorch, forward and every gradient: on the host, and as CUDA kernels, run by the
stand-in, in fp32 and bf16. layers.py LAYERS, where LAYERS is the program that the Makefile builds from layers.cpp.

PyTorch computes in float64, by its own formulas and autograd, from the layer's inputs, which were first rounded
to bf16 if the layer runs in bf16. The error is the RMS of the difference over the RMS of PyTorch's result, so one wrong
element in thousands shows. fp32 may be off by 1e-6: sums of up to some hundred terms, and a few roundings of 2^-24. bf16
keeps 8 bits, so one rounding is up to 2^-8, and 0.0011 on average. It may be off by 0.004; attention, which also rounds
probabilities, rotated keys and their gradients, by 0.008."""

import math
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import torch
import torch.nn.functional as F

TOLERANCE = {"host": 1e-6, "fp32": 1e-6, "bf16": 0.004}
passed = failed = 0
worst = {}


def rms(x):
    return float(x.pow(2).mean().sqrt()) if x.numel() else 0.0


class Case:
    """A layer as the driver runs it, and PyTorch's function for it: y(x, w, v), which returns a 2-D tensor of rows."""

    def __init__(self, kind, rows, width, out, forward, shapes=(), table=None, loss=False, size=1.0, bf16=1, note="", **field):
        self.kind, self.rows, self.width, self.out, self.forward = kind, rows, width, out, forward
        self.shapes, self.table, self.loss, self.size, self.bf16, self.note = shapes, table, loss, size, bf16, note
        self.field = dict(context=0, heads=0, kv_heads=0, rope=0, number=0.0, vocab=0, scaling=(0.0, 0.0, 0.0, 0),
                          experts=0, top=0, capacity=0, balance=0.0, inner=0) | field


def compare(what, side, got, want, tolerance):
    global passed, failed
    off = rms(got.double() - want) / max(rms(want), 1e-30)
    good = bool(off <= tolerance) and got.shape == want.shape
    passed, failed = passed + good, failed + (not good)
    worst[side] = max(worst.get(side, 0), off / tolerance) if off == off else math.inf
    if not good:
        print(f"{what}, {side}: off by {off:.3g} of the size, more than {tolerance:g}")


def run(driver, c, side, seed):
    draw = torch.Generator().manual_seed(seed)
    narrow = (lambda t: t.bfloat16().float()) if side == "bf16" else (lambda t: t)
    normal = lambda *shape: narrow(c.size * torch.randn(*shape, generator=draw))
    f, no_dx = c.field, c.kind in ("embedding", "bias")  # a bias passes dy on as dx and writes nothing
    x, w = normal(c.rows, c.width), [normal(*s) for s in c.shapes]
    v = normal(*c.table) if c.table else torch.zeros(0)
    dy = narrow(torch.randn(c.rows, c.out, generator=draw))
    token = torch.randint(max(f["vocab"], 1), (c.rows,), generator=draw, dtype=torch.int32)
    target = torch.randint(c.width, (c.rows,), generator=draw, dtype=torch.int32)
    wanted = narrow(torch.randn(c.rows, c.width, generator=draw)) if c.kind == "mse" else torch.zeros(0)
    count = sum(p.numel() for p in w)
    words = [side, c.kind, c.rows, c.width, c.out, f["context"], f["heads"], f["kv_heads"], f["rope"], f["number"],
             f["vocab"], count, v.numel(), *f["scaling"], f["experts"], f["top"], f["capacity"], f["balance"], f["inner"]]
    driver.stdin.write((" ".join(map(str, words)) + "\n").encode())
    for t in [x, *w, v, dy, token, target, wanted]:
        driver.stdin.write(t.numpy().tobytes())
    driver.stdin.flush()

    def take(*shape):
        raw = driver.stdout.read(4 * math.prod(shape))
        return torch.from_numpy(np.frombuffer(raw, np.float32).copy()).reshape(shape)

    got = SimpleNamespace()
    got.y = None if c.loss else take(c.rows, c.out)
    got.dx = None if no_dx else take(c.rows, c.width)
    got.dw = [take(*s) for s in c.shapes]
    got.dv = take(*c.table) if c.table else None
    got.loss = take(1) if c.loss else None

    leaves = [t.double().requires_grad_() for t in [x, *w, v]]
    X, W, V = leaves[0], leaves[1:-1], leaves[-1]
    batch = SimpleNamespace(token=token.long(), target=target.long(), wanted=wanted.double(), kept=got.y)
    batch.also = 0  # the layer's term of the loss
    y = c.forward(X, W, V, batch)
    (batch.also + (y if c.loss else (y * dy.double()).sum())).backward()
    allowed = TOLERANCE[side] * (c.bf16 if side == "bf16" else 1)
    name = f"{c.kind}{', ' if c.note else ''}{c.note}"
    if c.loss:
        compare(f"{name}: loss", side, got.loss, y.detach().reshape(1), TOLERANCE["fp32"])
    else:
        compare(f"{name}: y", side, got.y, y.detach(), allowed)
    if not no_dx:
        compare(f"{name}: dx", side, got.dx, X.grad, allowed)
    for i, p in enumerate(W):
        compare(f"{name}: gradient of parameter {i}", side, got.dw[i], p.grad, allowed)
    if c.table:
        compare(f"{name}: the table's gradient", side, got.dv, V.grad, allowed)


# ---- the layers ----

gelu = lambda x: F.gelu(x, approximate="tanh")


def gated(gate):
    return lambda x, w, v, b: gate(x.chunk(2, 1)[0]) * x.chunk(2, 1)[1]


def embedding(scale, positions=0, shared=False):
    def forward(x, w, v, b):
        y = scale * F.embedding(b.token, v if shared else w[0])
        return y + w[-1].repeat(len(y) // positions, 1) if positions else y
    return forward


def turn(x, base, scaling):
    """Rope as in transformers, by halves of a head, also with Llama 3's scaling. x: sequences, heads, rows, dim."""
    dim, (factor, low, high, context) = x.shape[-1], scaling
    speed = base ** -(torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    if factor and context:
        turns = context * speed / (2 * math.pi)
        kept = ((turns - low) / (high - low)).clamp(0, 1)
        speed = (1 - kept) * speed / factor + kept * speed
    elif factor:
        speed = speed / factor
    angle = torch.arange(x.shape[-2], dtype=torch.float64)[:, None] * speed
    cos, sin = torch.cat([angle.cos()] * 2, 1), torch.cat([angle.sin()] * 2, 1)
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


def attention(context, heads, kv_heads, rope, scaling=(0, 0, 0, 0)):
    def forward(x, w, v, b):
        dim = x.shape[1] // (heads + 2 * kv_heads)
        split = x.reshape(-1, context, heads + 2 * kv_heads, dim).transpose(1, 2)
        q, k, values = split.split([heads, kv_heads, kv_heads], 1)
        if rope:
            q, k = turn(q, rope, scaling), turn(k, rope, scaling)
        y = F.scaled_dot_product_attention(q, k, values, is_causal=True, enable_gqa=True)
        return y.transpose(1, 2).reshape(len(x), heads * dim)
    return forward


def headnorm(heads, kv_heads, eps):
    def forward(x, w, v, b):
        dim = x.shape[1] // (heads + 2 * kv_heads)
        q, k, values = x.reshape(len(x), -1, dim).split([heads, kv_heads, kv_heads], 1)
        y = F.rms_norm(q, (dim,), w[0], eps), F.rms_norm(k, (dim,), w[1], eps), values
        return torch.cat(y, 1).reshape(x.shape)
    return forward


def dropped(p):
    """The seed decides which values are dropped. PyTorch gives the share dropped and the value of the others."""
    def forward(x, w, v, b):
        mask, n = (b.kept != 0) | (x.detach() == 0), x.numel()
        share = float((~mask).double().mean())
        if abs(share - p) > 5 * math.sqrt(p * (1 - p) / n):
            raise SystemExit(f"dropout: {share} of {n} dropped, p being {p}")
        return x * mask / (1 - p)
    return forward


def mixture(context, experts, top, capacity, balance):
    """A mixture of experts. In each sequence, the first choices of all tokens take places at the experts, then the second
    choices; a choice whose expert is full is dropped. The balance loss is eq. 4 to 6 of Fedus 2021, per sequence."""
    def forward(x, w, v, b):
        chance = (x @ w[0]).softmax(1)
        value, chosen = chance.topk(top, 1)
        share = value if top == 1 else value / value.sum(1, keepdim=True)
        used, y = torch.zeros(len(x) // context, experts, dtype=int), torch.zeros_like(x)
        parts = [gelu(x @ w[1][e]) @ w[2][e] for e in range(experts)]
        rows = []
        for rank in range(top):
            for r in range(len(x)):
                e, s = int(chosen[r, rank]), r // context
                used[s, e] += 1
                rows += [(r, e, share[r, rank])] if used[s, e] <= capacity else []
        for r, e, weight in rows:
            y = y + torch.zeros_like(x).index_put((torch.tensor(r),), weight * parts[e][r])
        if len(rows) == len(x) * top and capacity < context:
            raise SystemExit("a mixture of experts: the case was to drop tokens")
        load = used.double() / (context * top)
        b.also = balance * experts * (load * chance.reshape(-1, context, experts).mean(1)).sum(1).mean()
        return y
    return forward


def cases():
    for rows, n in [(48, 40), (7, 13), (3, 600)]:
        note = f"{rows} x {n}"
        yield Case("linear", rows, n, 24, lambda x, w, v, b: x @ w[0] + w[1], [(n, 24), (24,)], note=note)
        yield Case("linear", rows, n, 24, lambda x, w, v, b: x @ w[0], [(n, 24)], note=note + ", unbiased")
        yield Case("unembedding", rows, n, 56, lambda x, w, v, b: x @ v.T, table=(56, n), note=note)
        for eps in [0.0, 1e-2]:
            used = eps or 1e-5
            yield Case("layernorm", rows, n, n, lambda x, w, v, b, e=used: F.layer_norm(x, x.shape[1:], w[0], w[1], e),
                       [(n,), (n,)], number=eps, note=f"{note}, eps {used}")
            yield Case("rmsnorm", rows, n, n, lambda x, w, v, b, e=used: F.rms_norm(x, x.shape[1:], w[0], e), [(n,)],
                       number=eps, note=f"{note}, eps {used}")
        for kind, f in [("relu", F.relu), ("gelu", gelu), ("silu", F.silu)]:
            yield Case(kind, rows, n, n, lambda x, w, v, b, f=f: f(x), note=note, size=2.0)
        yield Case("swiglu", rows, 2 * n, n, gated(F.silu), note=note, size=2.0)
        yield Case("geglu", rows, 2 * n, n, gated(gelu), note=note, size=2.0)
        yield Case("bias", rows, n, n, lambda x, w, v, b: x + w[0], [(n,)], note=note)
        yield Case("dropout", rows, n, n, dropped(0.25), number=0.25, note=note)
        yield Case("cross_entropy", rows, n, n, lambda x, w, v, b: F.cross_entropy(x, b.target), loss=True, note=note, bf16=2)
        yield Case("mse", rows, n, n, lambda x, w, v, b: F.mse_loss(x, b.wanted, reduction="sum") / 2 / len(x), loss=True,
                   note=note)
    for scale in [0.0, 8.0]:
        for positions in [0, 16]:
            for shared in [False, True]:
                shapes = ([] if shared else [(30, 20)]) + ([(16, 20)] if positions else [])
                yield Case("embedding", 48, 1, 20, embedding(scale or 1, positions, shared), shapes, number=scale,
                           table=(30, 20) if shared else None, vocab=30, context=positions,
                           note=f"scale {scale or 1:g}{', positions' * (positions > 0)}{', shared' * shared}")
    llama3 = (8.0, 1.0, 4.0, 16)
    for context, heads, kv_heads, dim, rope, scaling in [
            (12, 4, 4, 8, 0, None), (12, 4, 2, 8, 0, None), (40, 6, 1, 16, 10000, None), (33, 4, 2, 32, 500000, llama3),
            (33, 2, 2, 12, 1000, (4.0, 0.0, 0.0, 0)), (70, 2, 1, 64, 10000, None)]:
        scaling = scaling or (0.0, 0.0, 0.0, 0)
        yield Case("attention", 2 * context, (heads + 2 * kv_heads) * dim, heads * dim,
                   attention(context, heads, kv_heads, rope, scaling), context=context, heads=heads, kv_heads=kv_heads,
                   rope=rope, scaling=scaling, bf16=2,
                   note=f"{heads} heads of {dim}, {kv_heads} of keys, rope {rope}, scaled by {scaling[0]:g}")
    for rows, heads, kv_heads, dim, eps in [(48, 4, 2, 16, 0.0), (7, 3, 1, 13, 1e-2), (130, 2, 2, 8, 1e-6), (9, 16, 8, 128, 1e-6)]:
        columns = (heads + 2 * kv_heads) * dim
        yield Case("headnorm", rows, columns, columns, headnorm(heads, kv_heads, eps or 1e-5), [(dim,), (dim,)],
                   heads=heads, kv_heads=kv_heads, number=eps, note=f"{heads} heads of {dim}, {kv_heads} of keys, eps {eps or 1e-5}")
    for context, experts, top, capacity, balance in [(12, 4, 1, 12, 0.0), (12, 4, 2, 12, 0.5), (20, 4, 2, 8, 0.25)]:
        yield Case("route", 2 * context, 24, 24, mixture(context, experts, top, capacity, balance),
                   [(24, experts), (experts, 24, 40), (experts, 40, 24)], context=context, experts=experts, top=top,
                   capacity=capacity, balance=balance, inner=40, bf16=2, size=0.5,
                   note=f"{top} of {experts} experts, {capacity} places for {context} tokens, balance {balance:g}")


driver = subprocess.Popen([sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
kinds = set()
for number, case in enumerate(cases()):
    kinds.add(case.kind)
    for side in TOLERANCE:
        run(driver, case, side, number)
driver.stdin.close()
if driver.wait() != 0:
    failed += 1
said = ", ".join(f"{side} {100 * part:.0f} %" for side, part in worst.items())
print(f"{len(kinds)} kinds of layers against PyTorch {torch.__version__}: {passed} passed, {failed} failed; "
      f"largest error as a share of its tolerance: {said}")
sys.exit(failed > 0)
