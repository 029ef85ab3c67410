"""Models that Hugging Face's transformers make, tiny and random, in Pianola: the loss of a sequence, and the tokens that
greedy generation gives, are those of transformers. published.py PIANOLA"""

import json
import sys
import tempfile

import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from judge import expect, finish, run

PIANOLA = sys.argv[1]
CONTEXT, VOCAB = 48, 256
SEEN = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174]
HIDDEN = [b for b in range(256) if b not in SEEN]
ALPHABET = [chr(b if b in SEEN else 256 + HIDDEN.index(b)) for b in range(256)]
TOKENIZER = {
    "version": "1.0", "added_tokens": [], "normalizer": None, "post_processor": None, "decoder": {"type": "ByteLevel"},
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
    "model": {"type": "BPE", "vocab": {c: b for b, c in enumerate(ALPHABET)}, "merges": []},
}
size = dict(hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=6, num_key_value_heads=2,
            vocab_size=VOCAB, max_position_embeddings=CONTEXT, bos_token_id=None, eos_token_id=None, initializer_range=0.2)
MODELS = {
    "Llama": lambda: LlamaForCausalLM(LlamaConfig(**size, rms_norm_eps=1e-5, rope_theta=10000.0)),
    "Llama, tied": lambda: LlamaForCausalLM(LlamaConfig(**size, rms_norm_eps=1e-5, tie_word_embeddings=True)),
    "Llama, wide heads": lambda: LlamaForCausalLM(LlamaConfig(**size, head_dim=16, rms_norm_eps=1e-6)),
    "Llama, gated by gelu": lambda: LlamaForCausalLM(LlamaConfig(**size, rms_norm_eps=1e-5, hidden_act="gelu_pytorch_tanh")),
    "Llama 3.2": lambda: LlamaForCausalLM(LlamaConfig(**size, rms_norm_eps=1e-5, rope_theta=500000.0, tie_word_embeddings=True,
        rope_scaling={"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                      "original_max_position_embeddings": 16})),
    "Llama, linearly scaled rope": lambda: LlamaForCausalLM(LlamaConfig(**size, rms_norm_eps=1e-2, rope_theta=1000.0,
        rope_scaling={"rope_type": "linear", "factor": 4.0})),
    "Qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**size, rms_norm_eps=1e-6, rope_theta=1000000.0, tie_word_embeddings=True)),
    "GPT-2": lambda: GPT2LMHeadModel(GPT2Config(n_embd=48, n_layer=3, n_head=4, n_positions=CONTEXT, vocab_size=VOCAB,
        bos_token_id=None, eos_token_id=None, initializer_range=0.2, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)),
}
with tempfile.TemporaryDirectory() as room:
    text = "A model that was drawn at random says nothing, however long it is asked to go on."[: CONTEXT + 1]
    open(f"{room}/text", "w").write(text)
    for name, make in MODELS.items():
        torch.manual_seed(1)
        model = make().eval()
        for p in model.parameters():  # biases and norms are not left at 0 and 1
            if p.ndim == 1:
                p.data += 0.1 * torch.randn_like(p)
        folder = f"{room}/{name.replace(' ', '')}"
        model.save_pretrained(folder)
        json.dump(TOKENIZER, open(f"{folder}/tokenizer.json", "w"))
        tokens = torch.tensor([list(text.encode())])
        with torch.no_grad():
            y = model(tokens[:, :-1]).logits[0]
            loss = torch.nn.functional.cross_entropy(y.double(), tokens[0, 1:]).item()
            prompt = tokens[:, :12]
            greedy = model.generate(prompt, max_new_tokens=24, do_sample=False)[0, 12:].tolist()
        weights = f"{folder}/model.safetensors"
        ours = run(PIANOLA, "run", "schedules/serial.lua", "-D", "batches=1", "-D", "rows=1", "-D", f"context={CONTEXT}", "--weights",
                   weights, "--data", f"{room}/text", "--steps", "0", "--json")
        expect(f"{name}: loss", abs(ours.get("loss", 0) - loss) < 2e-5 * loss, f"{ours} instead of {loss}")
        said = run(PIANOLA, "generate", "--weights", weights, "--prompt", text[:12], "--tokens", "24", "--temperature", "0", "--json")
        expect(f"{name}: greedy", said.get("tokens") == greedy, f"{said} instead of {greedy}")
finish()
