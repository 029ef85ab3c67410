"""Writes a small Llama, Qwen2 or Qwen3 with random weights, as in transformers' files. Prints the loss of its weights
on a text, in double precision, or the most probable tokens after a prompt, up to the context.

    llamas.py FOLDER TEXT CONTEXT plain|qwen2|qwen3|llama3|linear [PROMPT]

Follows transformers' modeling_llama.py, modeling_qwen2.py, modeling_qwen3.py and modeling_rope_utils.py; uses no
code of ours."""

import json
import struct
import sys

import numpy as np

folder, path, context, kind = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
LAYERS, WIDTH, HEADS, GROUPS, DIM, INNER, VOCAB, BASE = 2, 48, 4, 2, 16, 80, 256, 1000.0
biased, normed = kind == "qwen2", kind == "qwen3"
eps = {"qwen2": 1e-1, "qwen3": 1e-1, "llama3": 1e-3}.get(kind, 1e-5)
scaling = {"linear": {"type": "linear", "factor": 4.0},
           "llama3": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                      "original_max_position_embeddings": 16}}.get(kind)
rng = np.random.default_rng(5)
draw = lambda *shape: rng.normal(0, 1 / shape[-1] ** 0.5 if len(shape) > 1 else 0.5, shape).astype(np.float32)

w = {"model.embed_tokens.weight": draw(VOCAB, WIDTH), "model.norm.weight": 1 + draw(WIDTH)}
for i in range(LAYERS):
    p = f"model.layers.{i}."
    for name, rows, columns in (
        ("self_attn.q_proj", HEADS * DIM, WIDTH), ("self_attn.k_proj", GROUPS * DIM, WIDTH),
        ("self_attn.v_proj", GROUPS * DIM, WIDTH), ("self_attn.o_proj", WIDTH, HEADS * DIM),
        ("mlp.gate_proj", INNER, WIDTH), ("mlp.up_proj", INNER, WIDTH), ("mlp.down_proj", WIDTH, INNER),
    ):
        w[p + name + ".weight"] = 2 * draw(rows, columns)
        if biased and name[-6:] in ("q_proj", "k_proj", "v_proj"):
            w[p + name + ".bias"] = draw(rows)
    for name in "input_layernorm", "post_attention_layernorm":
        w[p + name + ".weight"] = 1 + draw(WIDTH)
    for name in ("self_attn.q_norm", "self_attn.k_norm") if normed else ():
        w[p + name + ".weight"] = 1 + draw(DIM)

tied = kind in ("plain", "qwen2")
if not tied:
    w["lm_head.weight"] = 2 * draw(VOCAB, WIDTH)

header, data = {}, b""
for name, x in w.items():
    header[name] = {"dtype": "F32", "shape": x.shape, "data_offsets": [len(data), len(data) + x.nbytes]}
    data += x.tobytes()
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
open(f"{folder}/model.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + data)
json.dump({"model_type": kind if biased or normed else "llama", "hidden_act": "silu", "hidden_size": WIDTH, "intermediate_size": INNER,
           "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": GROUPS, "head_dim": DIM,
           "rms_norm_eps": eps, "rope_theta": BASE, "rope_scaling": scaling, "tie_word_embeddings": tied,
           "vocab_size": VOCAB, "max_position_embeddings": 128}, open(f"{folder}/config.json", "w"))

g = {k: v.astype(np.float64) for k, v in w.items()}
tokens = np.frombuffer(open(path, "rb").read(), np.uint8).astype(np.int64)[: context + 1]
norm = lambda x, name: x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * g[name + ".weight"]

# Frequencies, as computed by modeling_rope_utils.py's _compute_llama3_parameters.
frequency = 1 / BASE ** (np.arange(0, DIM, 2) / DIM)
if kind == "linear":
    frequency = frequency / scaling["factor"]
elif scaling:
    low = scaling["original_max_position_embeddings"] / scaling["low_freq_factor"]
    high = scaling["original_max_position_embeddings"] / scaling["high_freq_factor"]
    length = 2 * np.pi / frequency
    lowered = np.where(length > low, frequency / scaling["factor"], frequency)
    smooth = (scaling["original_max_position_embeddings"] / length - scaling["low_freq_factor"]) / (
        scaling["high_freq_factor"] - scaling["low_freq_factor"])
    between = (1 - smooth) * lowered / scaling["factor"] + smooth * lowered
    frequency = np.where(~(length < high) & ~(length > low), between, lowered)


def rope(x):
    angle = np.concatenate([np.arange(len(x))[:, None] * frequency] * 2, -1)[:, None]
    half = np.concatenate([-x[..., DIM // 2 :], x[..., : DIM // 2]], -1)
    return x * np.cos(angle) + half * np.sin(angle)


def logits(tokens):
    t = len(tokens)
    x = g["model.embed_tokens.weight"][tokens]
    for i in range(LAYERS):
        p = f"model.layers.{i}."
        product = lambda h, name: h @ g[p + name + ".weight"].T + g.get(p + name + ".bias", 0)
        h = norm(x, p + "input_layernorm")
        q, k, v = (product(h, f"self_attn.{n}_proj").reshape(t, -1, DIM) for n in "qkv")
        if normed:
            q, k = norm(q, p + "self_attn.q_norm"), norm(k, p + "self_attn.k_norm")
        q, k, v = rope(q), np.repeat(rope(k), HEADS // GROUPS, 1), np.repeat(v, HEADS // GROUPS, 1)
        score = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(DIM) + np.triu(np.full((t, t), -np.inf), 1)
        a = np.exp(score - score.max(-1, keepdims=True))
        a /= a.sum(-1, keepdims=True)
        x = x + product(np.einsum("hij,jhd->ihd", a, v).reshape(t, -1), "self_attn.o_proj")
        h = norm(x, p + "post_attention_layernorm")
        gate = product(h, "mlp.gate_proj")
        x = x + product(gate / (1 + np.exp(-gate)) * product(h, "mlp.up_proj"), "mlp.down_proj")
    return norm(x, "model.norm") @ g["model.embed_tokens.weight" if tied else "lm_head.weight"].T


if len(sys.argv) > 5:
    tokens = list(sys.argv[5].encode())
    n = len(tokens)
    while len(tokens) < context:
        y = logits(tokens)[-1]
        assert np.diff(np.sort(y)[-2:]) > 1e-4  # otherwise rounding may choose another one
        tokens.append(int(y.argmax()))
    sys.exit(print(", ".join(map(str, tokens[n:]))))
y = logits(tokens[:-1])
top = y.max(-1)
print(f"{(top + np.log(np.exp(y - top[:, None]).sum(-1)) - y[np.arange(len(y)), tokens[1:]]).mean():.7f}")
