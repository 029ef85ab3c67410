"""Writes a small GPT-2 with random weights, as in transformers' files. Prints the loss of its weights on a text, in
double precision; with PROMPT, prints the most probable tokens after it instead, until the context is full.

    gpt2.py FOLDER TEXT CONTEXT [PROMPT]

Follows Radford 2019 and transformers' modeling_gpt2.py; uses no code of ours."""

import json
import struct
import sys

import numpy as np

LAYERS, WIDTH, HEADS, VOCAB, CONTEXT = 2, 48, 4, 256, int(sys.argv[3])
rng = np.random.default_rng(2)
draw = lambda *shape: rng.normal(0, 1 / shape[0] ** 0.5 if len(shape) > 1 else 0.2, shape).astype(np.float32)

# Names without their first part, as in the published files; products are in x out.
w = {"wte.weight": draw(VOCAB, WIDTH) * 8, "wpe.weight": draw(CONTEXT, WIDTH) * 4}
for i in range(LAYERS):
    for name, shape in (("attn.c_attn", (WIDTH, 3 * WIDTH)), ("attn.c_proj", (WIDTH, WIDTH)),
                        ("mlp.c_fc", (WIDTH, 4 * WIDTH)), ("mlp.c_proj", (4 * WIDTH, WIDTH))):
        w[f"h.{i}.{name}.weight"], w[f"h.{i}.{name}.bias"] = draw(*shape), draw(shape[1])
    for name in "ln_1", "ln_2":
        w[f"h.{i}.{name}.weight"], w[f"h.{i}.{name}.bias"] = 1 + draw(WIDTH), draw(WIDTH)
    w[f"h.{i}.attn.bias"] = np.tril(np.ones((1, 1, 8, 8), np.float32))  # a mask, not a weight
w["ln_f.weight"], w["ln_f.bias"] = 1 + draw(WIDTH), draw(WIDTH)

header, data = {"__metadata__": {"format": "pt"}}, b""
for name, x in w.items():
    header[name] = {"dtype": "F32", "shape": x.shape, "data_offsets": [len(data), len(data) + x.nbytes]}
    data += x.tobytes()
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
open(f"{sys.argv[1]}/model.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + data)
json.dump({"model_type": "gpt2", "n_layer": LAYERS, "n_embd": WIDTH, "n_head": HEADS, "n_positions": CONTEXT, "n_ctx": CONTEXT,
           "vocab_size": VOCAB, "n_inner": None, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-3,
           "summary_proj_to_labels": True}, open(f"{sys.argv[1]}/config.json", "w"))

g = {k: v.astype(np.float64) for k, v in w.items()}
tokens = np.frombuffer(open(sys.argv[2], "rb").read(), np.uint8).astype(np.int64)[: CONTEXT + 1]


def norm(x, name):
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-3) * g[name + ".weight"] + g[name + ".bias"]


def logits(tokens):
    t = len(tokens)
    x = g["wte.weight"][tokens] + g["wpe.weight"][:t]
    for i in range(LAYERS):
        p = f"h.{i}."
        product = lambda h, name: h @ g[p + name + ".weight"] + g[p + name + ".bias"]
        q, k, v = (a.reshape(t, HEADS, -1) for a in np.split(product(norm(x, p + "ln_1"), "attn.c_attn"), 3, -1))
        score = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(q.shape[-1]) + np.triu(np.full((t, t), -np.inf), 1)
        a = np.exp(score - score.max(-1, keepdims=True))
        a /= a.sum(-1, keepdims=True)
        x = x + product(np.einsum("hij,jhd->ihd", a, v).reshape(t, -1), "attn.c_proj")
        h = product(norm(x, p + "ln_2"), "mlp.c_fc")
        x = x + product(0.5 * h * (1 + np.tanh(np.sqrt(2 / np.pi) * (h + 0.044715 * h**3))), "mlp.c_proj")
    return norm(x, "ln_f") @ g["wte.weight"].T


if len(sys.argv) > 4:
    tokens = list(sys.argv[4].encode())
    n = len(tokens)
    while len(tokens) < CONTEXT:
        y = logits(tokens)[-1]
        assert np.diff(np.sort(y)[-2:]) > 1e-4  # otherwise rounding may choose another one
        tokens.append(int(y.argmax()))
    sys.exit(print(", ".join(map(str, tokens[n:]))))
y = logits(tokens[:-1])
top = y.max(-1)
print(f"{(top + np.log(np.exp(y - top[:, None]).sum(-1)) - y[np.arange(len(y)), tokens[1:]]).mean():.7f}")
