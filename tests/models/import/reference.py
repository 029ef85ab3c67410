"""Computes the loss of a Llama on tokens, with numpy in double precision, from the GGUF file itself.
tests/models/import/test.sh compares `pianola run --weights` with it.

    reference.py MODEL.gguf TOKENS.bin CONTEXT   # on the file's first CONTEXT + 1 tokens

The formats follow ggml's docs/gguf.md and ggml-common.h, the model follows Hugging Face's modeling_llama.py; no code
of ours is used."""

import struct
import sys

import numpy as np


class Gguf:
    SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}

    def __init__(self, path):
        self.data = open(path, "rb").read()
        self.at = 4
        version, tensors, pairs = self.read("I"), self.read("Q"), self.read("Q")
        assert version in (2, 3)
        self.meta = {}
        for _ in range(pairs):
            key = self.string()
            self.meta[key] = self.value(self.read("I"))
        self.tensor = {}
        for _ in range(tensors):
            name = self.string()
            shape = [self.read("Q") for _ in range(self.read("I"))][::-1]
            self.tensor[name] = shape, self.read("I"), self.read("Q")
        alignment = self.meta.get("general.alignment", 32)
        self.begin = -(-self.at // alignment) * alignment

    def read(self, kind):
        (x,) = struct.unpack_from("<" + kind, self.data, self.at)
        self.at += struct.calcsize(kind)
        return x

    def string(self):
        n = self.read("Q")
        self.at += n
        return self.data[self.at - n : self.at].decode("utf-8", "replace")

    def value(self, kind):
        if kind == 8:
            return self.string()
        if kind == 9:
            inner, n = self.read("I"), self.read("Q")
            return [self.value(inner) for _ in range(n)]
        return self.read(self.SCALARS[kind])

    def __getitem__(self, name):
        shape, kind, offset = self.tensor[name]
        n, at = int(np.prod(shape)), self.begin + offset
        size = {0: 4, 1: 2, 2: 18 / 32, 3: 20 / 32, 8: 34 / 32}[kind]
        raw = np.frombuffer(self.data, np.uint8, int(n * size), at)
        if kind in (0, 1):
            return raw.view(np.float32 if kind == 0 else np.float16).astype(np.float64).reshape(shape)
        block = raw.reshape(n // 32, -1)
        scale = block[:, :2].copy().view(np.float16).astype(np.float64)
        if kind == 8:
            return (block[:, 2:].view(np.int8) * scale).reshape(shape)
        bits = block[:, 4 if kind == 3 else 2 :]
        values = np.concatenate([bits & 15, bits >> 4], 1).astype(np.float64)
        shift = block[:, 2:4].copy().view(np.float16).astype(np.float64) if kind == 3 else -8 * scale
        return (values * scale + shift).reshape(shape)


def norm(x, gamma, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * gamma


def rope(x, heads, base, divisors):
    """Rotates pairs of neighbours, as in llama.cpp's files: columns 2i and 2i + 1 of a head turn by p base^(-2i / dim)
    / divisor i."""
    t, dim = x.shape[0], x.shape[1] // heads
    x = x.reshape(t, heads, dim // 2, 2)
    angle = np.arange(t)[:, None, None] * base ** (-2 * np.arange(dim // 2) / dim) / divisors
    a, b = x[..., 0], x[..., 1]
    return np.stack([a * np.cos(angle) - b * np.sin(angle), a * np.sin(angle) + b * np.cos(angle)], -1).reshape(t, heads, dim)


def logits(g, tokens):
    """Returns the loss of each token."""
    m = {k.split(".", 1)[1]: v for k, v in g.meta.items() if k.startswith("llama.")}
    heads, groups = m["attention.head_count"], m["attention.head_count_kv"]
    eps, base = m["attention.layer_norm_rms_epsilon"], m["rope.freq_base"]
    table, divisors = g["token_embd.weight"], g["rope_freqs.weight"] if "rope_freqs.weight" in g.tensor else 1
    x, t = table[tokens], len(tokens)
    for i in range(m["block_count"]):
        w = lambda name: g[f"blk.{i}.{name}.weight"]
        h = norm(x, w("attn_norm"), eps)
        q, k = (rope(h @ w(f"attn_{name}").T, n, base, divisors) for name, n in (("q", heads), ("k", groups)))
        v = (h @ w("attn_v").T).reshape(t, groups, -1)
        k, v = np.repeat(k, heads // groups, 1), np.repeat(v, heads // groups, 1)
        score = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(q.shape[-1]) + np.triu(np.full((t, t), -np.inf), 1)
        p = np.exp(score - score.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        x = x + np.einsum("hij,jhd->ihd", p, v).reshape(t, -1) @ w("attn_output").T
        h = norm(x, w("ffn_norm"), eps)
        gate = h @ w("ffn_gate").T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ w("ffn_up").T)) @ w("ffn_down").T
    return norm(x, g["output_norm.weight"], eps) @ (g["output.weight"] if "output.weight" in g.tensor else table).T


def loss(g, tokens):
    y = logits(g, tokens[:-1])
    top = y.max(-1)
    return (top + np.log(np.exp(y - top[:, None]).sum(-1)) - y[np.arange(len(y)), tokens[1:]]).mean()


def greedy(g, tokens, n):
    """Returns the n most probable next tokens, one after the other, and the smallest margin of any. Recomputes
    everything for each token, without a cache."""
    tokens, margin = list(tokens), np.inf
    for _ in range(n):
        last = logits(g, np.array(tokens))[-1]
        second, first = np.sort(last)[-2:]
        tokens.append(int(last.argmax()))
        margin = min(margin, first - second)
    return tokens[-n:], margin


if __name__ == "__main__":
    tokens = np.fromfile(sys.argv[2], np.uint16)[512:].astype(np.int64)[: int(sys.argv[3]) + 1]
    print(f"{loss(Gguf(sys.argv[1]), tokens):.6f}")
