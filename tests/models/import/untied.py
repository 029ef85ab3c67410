"""Writes a small Llama whose config.json says that the output layer is the token table. Its lm_head.weight differs from
the table (differs) or equals it (same): untied.py FOLDER differs|same [more]. more: adds a buffer that is not a
weight."""
import json
import random
import struct
import sys

random.seed(0)
V, W, I, H = 16, 8, 16, 2
folder, kind = sys.argv[1:3]
T = {"model.embed_tokens.weight": (V, W), "lm_head.weight": (V, W), "model.norm.weight": (W,)}
for n, s in {"self_attn.q_proj": (W, W), "self_attn.k_proj": (W, W), "self_attn.v_proj": (W, W),
             "self_attn.o_proj": (W, W), "mlp.gate_proj": (I, W), "mlp.up_proj": (I, W), "mlp.down_proj": (W, I),
             "input_layernorm": (W,), "post_attention_layernorm": (W,)}.items():
    T[f"model.layers.0.{n}.weight"] = s
if len(sys.argv) > 3:
    T["model.layers.0.self_attn.rotary_emb.inv_freq"] = (2,)
header, data, values = {}, b"", {}
for n in sorted(T, key=lambda n: (n == "lm_head.weight", n)):
    k = T[n][0] * (T[n][1] if len(T[n]) > 1 else 1)
    values[n] = [1.0 if len(T[n]) == 1 else random.gauss(0, .5) for _ in range(k)]
    if n == "lm_head.weight" and kind == "same":
        values[n] = values["model.embed_tokens.weight"]
    header[n] = {"dtype": "F32", "shape": list(T[n]), "data_offsets": [len(data), len(data) + 4 * k]}
    data += struct.pack("<%df" % k, *values[n])
text = json.dumps(header).encode()
open(f"{folder}/model.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + data)
json.dump({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": V, "hidden_size": W,
           "intermediate_size": I, "num_hidden_layers": 1, "num_attention_heads": H, "num_key_value_heads": H,
           "max_position_embeddings": 16, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu",
           "tie_word_embeddings": True}, open(f"{folder}/config.json", "w"))
ids = [random.randrange(V) for _ in range(9)]
open(f"{folder}/t.bin", "wb").write(struct.pack("<256i", 20240520, 1, 9, *[0] * 253) + struct.pack("<9H", *ids))
