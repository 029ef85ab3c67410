"""SmolLM2-135M-Instruct from its GGUF file, in transformers and in Pianola: the same tokens, the loss that a working
model has on a real text before any training, and greedy generation word for word. smollm.py PIANOLA GGUF TEXT"""

import os
import subprocess
import sys
import tempfile

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from judge import expect, finish, run

pianola, gguf, text = sys.argv[1:]
CONTEXT, PIECES = 256, 4
folder, file = os.path.split(gguf)
model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32).eval()
tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=file)
ids = tokenizer(open(text).read(), add_special_tokens=False)["input_ids"]
with tempfile.TemporaryDirectory() as room:
    wanted, told = [], []
    for piece in range(PIECES):
        words = tokenizer.decode(ids[2000 * piece: 2000 * piece + CONTEXT + 8])
        own = tokenizer(words, add_special_tokens=False)["input_ids"]
        open(f"{room}/text", "w").write(words)
        subprocess.run([pianola, "tokenize", f"{room}/text", "--tokenizer", gguf, "-o", f"{room}/bin"], check=True,
                       capture_output=True)
        back = subprocess.run([pianola, "tokenize", "--decode", f"{room}/bin", "--tokenizer", gguf], check=True,
                              capture_output=True, text=True).stdout
        expect(f"piece {piece}, back", back == words, back[:80])
        n = len(own) - 1
        ours = run(pianola, "run", "schedules/serial.lua", "-D", "batches=1", "-D", "rows=1", "-D", f"context={n}", "--weights", gguf,
                   "--data", f"{room}/bin", "--steps", "0", "--json")
        x = torch.tensor([own])
        with torch.no_grad():
            y = model(x[:, :-1]).logits[0].double()
        wanted.append(torch.nn.functional.cross_entropy(y, x[0, 1:]).item())
        told.append(ours.get("loss", 0))
        expect(f"piece {piece}: loss", abs(told[-1] - wanted[-1]) < 2e-5 * wanted[-1], f"{ours} instead of {wanted[-1]}")
    for prompt in ("The capital of France is", "def fibonacci(n):"):
        x = torch.tensor([tokenizer(prompt, add_special_tokens=False)["input_ids"]])
        with torch.no_grad():
            greedy = model.generate(x, max_new_tokens=24, do_sample=False)[0, x.shape[1]:].tolist()
        said = run(pianola, "generate", "--weights", gguf, "--tokenizer", gguf, "--prompt", prompt, "--tokens", "24", "--temperature",
                   "0", "--json")
        expect(f"{prompt!r}", said.get("tokens") == greedy, f"{said} instead of {greedy}")
    # Export: after one small step, transformers load the exported folder without adding anything.
    script = ["--model", "schedules/models/llama.lua", "-D", "size=SmolLM2-135M", "-D", "rows=1", "-D", "lr=1e-9"]
    run(pianola, "run", "schedules/serial.lua", "-D", "stages=1", "-D", "batches=1", *script, "-D", "context=64", "--weights", gguf,
        "--data", f"{room}/bin", "--steps", "1", "--checkpoint", f"{room}/saved", "--json")
    subprocess.run([pianola, "export-weights", f"{room}/saved", "--names", "hf", *script, "-D", "context=8192", "--tokenizer", gguf,
                    "-o", f"{room}/hf"], check=True, capture_output=True)
    ours = AutoModelForCausalLM.from_pretrained(f"{room}/hf", dtype=torch.float32).eval()
    words = AutoTokenizer.from_pretrained(f"{room}/hf")
    with torch.no_grad():
        off = (ours(x).logits - model(x).logits).abs().max().item()
    expect("exported: the model's logits", off < 1e-2, off)
    sample = open(text).read()[:20000]
    expect("exported: the tokenizer's tokens", words(sample)["input_ids"] == tokenizer(sample)["input_ids"], "")
    chat = [{"role": "user", "content": "Who wrote The Devil's Dictionary?"}]
    expect("exported: the template of chats", words.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
           == tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True), words.chat_template)
    for name in ("bos_token_id", "eos_token_id"):
        expect(f"exported: {name}", getattr(words, name) == getattr(tokenizer, name) == getattr(ours.config, name),
               [getattr(words, name), getattr(tokenizer, name), getattr(ours.config, name)])
print(f"loss before training, by PyTorch {sum(wanted) / PIECES:.6f}, here {sum(told) / PIECES:.6f}")
finish()
