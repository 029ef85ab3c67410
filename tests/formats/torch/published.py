"""Compares tiny random models of Hugging Face's transformers with Pianola: the loss of a sequence and the tokens that
greedy generation gives must be equal. Qwen3 is also tested from a GGUF file with llama.cpp's names. A folder
exported from a checkpoint must give transformers the logits of the original model. published.py PIANOLA"""

import json
import os
import re
import subprocess
import sys
import tempfile

import gguf
import numpy as np
import torch
from transformers import (AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, Qwen2Config,
                          Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM)
from transformers.utils.logging import disable_progress_bar, set_verbosity_error

from judge import expect, finish, run

disable_progress_bar()
set_verbosity_error()
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
    "Qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**size, head_dim=16, rms_norm_eps=1e-6, rope_theta=1000000.0)),
    "Qwen3, tied": lambda: Qwen3ForCausalLM(Qwen3Config(**size, head_dim=8, rms_norm_eps=1e-2, tie_word_embeddings=True)),
    "GPT-2": lambda: GPT2LMHeadModel(GPT2Config(n_embd=48, n_layer=3, n_head=4, n_positions=CONTEXT, vocab_size=VOCAB,
        bos_token_id=None, eos_token_id=None, initializer_range=0.2, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)),
}


def write_gguf(path, model):
    """Writes a Qwen3 as llama.cpp's convert_hf_to_gguf.py does."""
    c, out = model.config, gguf.GGUFWriter(path, "qwen3")
    out.add_block_count(c.num_hidden_layers)
    out.add_context_length(c.max_position_embeddings)
    out.add_embedding_length(c.hidden_size)
    out.add_feed_forward_length(c.intermediate_size)
    out.add_head_count(c.num_attention_heads)
    out.add_head_count_kv(c.num_key_value_heads)
    out.add_key_length(c.head_dim)
    out.add_value_length(c.head_dim)
    out.add_layer_norm_rms_eps(c.rms_norm_eps)
    out.add_rope_freq_base(c.rope_parameters["rope_theta"])
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("qwen2")
    out.add_token_list(ALPHABET)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN3, c.num_hidden_layers)
    for name, p in model.state_dict().items():
        if name != "lm_head.weight" or not c.tie_word_embeddings:
            out.add_tensor(names.get_name(name, try_suffixes=(".weight",)), p.numpy())
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def exported(room, weights):
    """Returns the folder exported from a checkpoint after a step that changes no weight."""
    ours, at = ["schedules/serial.lua", "-D", "batches=1", "-D", "rows=1"], tempfile.mkdtemp(dir=room)
    told = subprocess.run([PIANOLA, "run", *ours, "--weights", weights, "--data", f"{room}/text", "-D", f"context={CONTEXT}",
                           "--steps", "0"], capture_output=True, text=True).stderr
    model = re.search("is of (--model .*)", told)[1].split() + ["-D", f"context={CONTEXT}", "-D", "lr=1e-30"]
    env = {**os.environ, "PKG_CONFIG_PATH": os.path.dirname(os.path.abspath(PIANOLA))}

    def do(*command):
        r = subprocess.run(command, env=env, capture_output=True, text=True)
        if r.returncode:
            sys.exit(f"{' '.join(command)}: {r.stderr}")

    do(PIANOLA, "compile", *ours, *model, "-o", at)
    do("make", "-s", "-C", at)
    do(f"{at}/rank0", "--rank", "0", "--world-size", "1", "--data", f"{room}/text", "--steps", "1", "--weights", weights,
       "--checkpoint", f"{at}/saved")
    do(PIANOLA, "export-weights", f"{at}/saved", "--names", "hf", *model, "-D", "rows=1", "-o", f"{at}/hf")
    return f"{at}/hf"


with tempfile.TemporaryDirectory() as room:
    text = "A model that was drawn at random says nothing, however long it is asked to go on."[: CONTEXT + 1]
    open(f"{room}/text", "w").write(text)
    for name, make in MODELS.items():
        torch.manual_seed(1)
        model = make().eval()
        for p in model.parameters():  # moves biases and norms away from 0 and 1
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
        files = [f"{folder}/model.safetensors"]
        if name.startswith("Qwen3"):
            files.append(f"{folder}/{name.split(',')[0]}.gguf")
            write_gguf(files[1], model)
        for weights in files:
            what = f"{name}, {os.path.basename(weights)}"
            ours = run(PIANOLA, "run", "schedules/serial.lua", "-D", "batches=1", "-D", "rows=1", "-D", f"context={CONTEXT}",
                       "--weights", weights, "--data", f"{room}/text", "--steps", "0", "--json")
            expect(f"{what}: loss", abs(ours.get("loss", 0) - loss) < 2e-5 * loss, f"{ours} instead of {loss}")
            said = run(PIANOLA, "generate", "--weights", weights, "--tokenizer", f"{folder}/tokenizer.json", "--prompt", text[:12],
                       "--tokens", "24", "--temperature", "0", "--json")
            expect(f"{what}: greedy", said.get("tokens") == greedy, f"{said} instead of {greedy}")
        again, told = AutoModelForCausalLM.from_pretrained(exported(room, files[0]), output_loading_info=True)
        with torch.no_grad():
            off = (again.eval()(tokens[:, :-1]).logits[0] - y).abs().max().item()
        expect(f"{name}: logits of what is exported", off == 0 and type(again) is type(model) and not any(told.values()),
               f"off by up to {off}, a {type(again).__name__}, {told}")
finish()
