"""Writes a small Llama with random weights, in each kind of file that `--weights` reads. Prints each file's name and
the loss of its weights on a text, in double precision (reference.py).

    files.py FOLDER TEXT CONTEXT"""

import json
import struct
import sys

import numpy as np
from reference import loss

LAYERS, WIDTH, HEADS, GROUPS, INNER, VOCAB, BASE = 2, 64, 4, 2, 96, 256, 10000
DIM = WIDTH // HEADS
rng = np.random.default_rng(1)


def draw(*shape):
    return rng.normal(0, 0.3 / shape[-1] ** 0.5 if len(shape) > 1 else 0.1, shape).astype(np.float32)


# Names are llama.cpp's, and rows of q and k are in llama.cpp's order; a row is an output.
weights = {"token_embd.weight": 4 * draw(VOCAB, WIDTH)}
for i in range(LAYERS):
    for name, rows, columns in (
        ("attn_q", WIDTH, WIDTH), ("attn_k", GROUPS * DIM, WIDTH), ("attn_v", GROUPS * DIM, WIDTH),
        ("attn_output", WIDTH, WIDTH), ("ffn_gate", INNER, WIDTH), ("ffn_up", INNER, WIDTH), ("ffn_down", WIDTH, INNER),
    ):
        weights[f"blk.{i}.{name}.weight"] = 4 * draw(rows, columns)
    for name in "attn_norm", "ffn_norm":
        weights[f"blk.{i}.{name}.weight"] = 1 + draw(WIDTH)
weights["output_norm.weight"] = 1 + draw(WIDTH)
weights["output.weight"] = 4 * draw(VOCAB, WIDTH)
meta = {
    "llama.attention.head_count": HEADS, "llama.attention.head_count_kv": GROUPS, "llama.block_count": LAYERS,
    "llama.attention.layer_norm_rms_epsilon": 1e-5, "llama.rope.freq_base": BASE,
}


class Model(dict):
    meta = meta

    @property
    def tensor(self):
        return self


def loss_of(w):
    text = np.frombuffer(open(sys.argv[2], "rb").read(), np.uint8).astype(np.int64)
    return loss(Model({k: v.astype(np.float64) for k, v in w.items()}), text[: int(sys.argv[3]) + 1])


def tell(name, w):
    print(name, f"{loss_of(w):.7f}")


# ---- Hugging Face's names ----

HF = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
      "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
      "ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}


def hf_name(name):
    known = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight",
             "output.weight": "lm_head.weight"}
    if name in known:
        return known[name]
    _, i, what, _ = name.split(".")
    return f"model.layers.{i}.{HF[what]}.weight"


def halves(name, w):
    """Returns w with a head's pairs of neighbours rearranged as its two halves."""
    heads = HEADS if "attn_q" in name else GROUPS if "attn_k" in name else 0
    return w.reshape(heads, DIM // 2, 2, -1).swapaxes(1, 2).reshape(w.shape) if heads else w


def bf16(w):
    bits = w.view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


STORED = {"F32": lambda w: w, "F16": lambda w: w.astype(np.float16), "BF16": bf16}
READ = {"F32": lambda x: x, "F16": lambda x: x.astype(np.float32),
        "BF16": lambda x: (x.astype(np.uint32) << 16).view(np.float32)}


def write_safetensors(path, w, kind):
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, x in w.items():
        raw = STORED[kind](x).tobytes()
        header[name] = {"dtype": kind, "shape": x.shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    open(path, "wb").write(struct.pack("<Q", len(text)) + text + data)


hf = {hf_name(name): halves(name, w) for name, w in weights.items()}
for kind in STORED:
    write_safetensors(f"{sys.argv[1]}/{kind}.safetensors", hf, kind)
    tell(f"{kind}.safetensors", {n: READ[kind](STORED[kind](w)) for n, w in weights.items()})
names = list(hf)
index = {"metadata": {"total_size": 1}, "weight_map": {}}
for part in range(3):
    file = f"model-{part + 1:05}-of-00003.safetensors"
    write_safetensors(f"{sys.argv[1]}/{file}", {n: hf[n] for n in names[part::3]}, "F32")
    index["weight_map"].update({n: file for n in names[part::3]})
json.dump(index, open(f"{sys.argv[1]}/model.safetensors.index.json", "w"), indent=2)
tell("model.safetensors.index.json", weights)

# The other files in a safetensors folder.
json.dump({
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": WIDTH,
    "intermediate_size": INNER, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": GROUPS,
    "rms_norm_eps": 1e-05, "rope_theta": float(BASE), "rope_scaling": None, "tie_word_embeddings": False,
    "vocab_size": VOCAB, "attention_bias": False, "initializer_range": 0.02, "max_position_embeddings": 2048,
}, open(f"{sys.argv[1]}/config.json", "w"), indent=2)

# ---- GGUF ----


def blocks(w, kind):
    """Returns bytes, and the values that they stand for, as blocks of 32 (ggml-common.h)."""
    x = w.reshape(-1, 32)
    low, high = x.min(1, keepdims=True), x.max(1, keepdims=True)
    if kind == "Q8_0":
        d = (np.abs(x).max(1, keepdims=True) / 127).astype(np.float16)
        q = np.clip(np.round(x / np.maximum(d.astype(np.float32), 1e-9)), -127, 127).astype(np.int8)
        return np.concatenate([d.view(np.uint8), q.view(np.uint8)], 1), q * d.astype(np.float32)
    if kind == "Q4_1":
        d, m = ((high - low) / 15).astype(np.float16), low.astype(np.float16)
    else:
        d, m = (np.abs(x).max(1, keepdims=True) / 7).astype(np.float16), None
    base = m.astype(np.float32) if m is not None else -8 * d.astype(np.float32)
    q = np.clip(np.round((x - base) / np.maximum(d.astype(np.float32), 1e-9)), 0, 15).astype(np.uint8)
    packed = q[:, :16] | q[:, 16:] << 4
    head = [d.view(np.uint8)] + ([m.view(np.uint8)] if m is not None else [])
    return np.concatenate(head + [packed], 1), q * d.astype(np.float32) + base


# GPT-2's alphabet: each byte as a visible character. There is a token for each, in the order of the bytes.
SEEN = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174]
HIDDEN = [b for b in range(256) if b not in SEEN]
ALPHABET = [chr(b if b in SEEN else 256 + HIDDEN.index(b)) for b in range(256)]

NUMBER = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 8, "BF16": 30}


def write_gguf(path, w, kind, alignment, more={}):
    string = lambda s: struct.pack("<Q", len(s.encode())) + s.encode()
    texts = {"general.architecture": "llama", "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2"}
    lists = {"some.list": ["a", "bc"], "tokenizer.ggml.tokens": ALPHABET, "tokenizer.ggml.merges": []}
    numbers = {**meta, "llama.embedding_length": WIDTH, "llama.feed_forward_length": INNER, "general.alignment": alignment, **more}
    out = b"GGUF" + struct.pack("<IQQ", 3, len(w), len(texts) + len(lists) + len(numbers))
    for key, text in texts.items():
        out += string(key) + struct.pack("<I", 8) + string(text)
    for key, texts in lists.items():
        out += string(key) + struct.pack("<IIQ", 9, 8, len(texts)) + b"".join(map(string, texts))
    for key, x in numbers.items():
        out += string(key) + (struct.pack("<If", 6, x) if isinstance(x, float) else struct.pack("<II", 4, x))
    data, read = b"", {}
    for name, x in w.items():
        kept = "F32" if x.ndim == 1 else kind
        if kept in STORED:
            raw = STORED[kept](x)
            read[name] = READ[kept](raw)
        else:
            raw, values = blocks(x, kept)
            read[name] = values.reshape(x.shape).astype(np.float32)
        data += b"\0" * (-len(data) % alignment)
        out += string(name) + struct.pack("<I", x.ndim) + b"".join(struct.pack("<Q", d) for d in x.shape[::-1])
        out += struct.pack("<IQ", NUMBER[kept], len(data))
        data += raw.tobytes()
    out += b"\0" * (-len(out) % alignment)
    open(path, "wb").write(out + data)
    return read


for kind in NUMBER:
    tell(f"{kind}.gguf", write_gguf(f"{sys.argv[1]}/{kind}.gguf", weights, kind, 64 if kind == "Q8_0" else 32))

write_gguf(f"{sys.argv[1]}/linear.gguf", weights, "F32", 32, {"llama.rope.scaling.factor": 4.0})

# Llama 3's scaled rope as divisors, computed as in llama.cpp's convert_hf_to_gguf.py; also for another context.
for name, context in ("scaled", 8192), ("shorter", 4096):
    divisors = []
    for frequency in BASE ** (-np.arange(0, DIM, 2) / DIM):
        wave = 2 * np.pi / frequency
        smooth = (context / wave - 1) / (4 - 1)
        divisors.append(1 if wave < context / 4 else 32 if wave > context else 1 / ((1 - smooth) / 32 + smooth))
    tensors = {**weights, "rope_freqs.weight": np.array(divisors, np.float32)}
    read = write_gguf(f"{sys.argv[1]}/{name}.gguf", tensors, "F32", 32)
    open(f"{sys.argv[1]}/{name}.loss", "w").write(f"{loss_of(read):.7f}")

# The same tokens, for safetensors.
json.dump({
    "version": "1.0", "added_tokens": [], "normalizer": None,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
    "decoder": {"type": "ByteLevel"}, "post_processor": None,
    "model": {"type": "BPE", "vocab": {c: b for b, c in enumerate(ALPHABET)}, "merges": []},
}, open(f"{sys.argv[1]}/tokenizer.json", "w"))
