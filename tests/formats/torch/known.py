"""`pianola check-unit` on exported models: it compares the loss and the gradients with the file that the exporter wrote,
and finds damage. A min-cut partition keeps fewer bytes and computes the same. known.py PIANOLA"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "export"), str(ROOT / "export" / "examples")]

import torch
import transformers as T
from safetensors.torch import load_file, save_file
from torch import nn

from judge import expect, finish
from low_rank import low_rank
from pianola_export import export
from small_gpt import SmallGPT

T.utils.logging.set_verbosity_error()
torch.set_num_threads(1)
PIANOLA = sys.argv[1]


class Dropping(SmallGPT):
    def __init__(self):
        super().__init__(layers=2)
        for block in self.blocks:
            block.out = nn.Sequential(block.out, nn.Dropout(0.5))


class Layer(nn.Module):
    def __init__(self, block):
        super().__init__()
        self.block = block

    def forward(self, x, mask):
        return self.block(x) * mask[..., None]


class Masking(SmallGPT):
    """Reads a mask and factors besides the tokens."""

    def __init__(self):
        super().__init__(layers=2)
        self.blocks = nn.ModuleList(Layer(b) for b in self.blocks)

    def forward(self, tokens, mask, factors):
        x = self.tokens(tokens) * factors.mean(2, keepdim=True)
        for block in self.blocks:
            x = block(x, mask)
        return self.head(self.norm(x))


def tied():
    sizes = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, vocab_size=256)
    return T.LlamaForCausalLM(T.LlamaConfig(**sizes, tie_word_embeddings=True))


TOKENS = torch.zeros(2, 32, dtype=torch.long)
SIDES = {"mask": torch.rand(2, 32) < 0.7, "factors": torch.randn(2, 32, 3)}
# Models, the path of their layers, their inputs, and how many gradients are compared.
MODELS = {
    "GPT": (lambda: SmallGPT(layers=2), "blocks", {}, 30),
    "tied": (tied, "model.layers", {}, 20),
    "LoRA": (lambda: low_rank(SmallGPT(layers=2), ["qkv", "up"]), "blocks", {}, 8),
    "dropout": (Dropping, "blocks", {}, 0),
    "inputs": (Masking, "blocks", SIDES, 29),
}


def check(folder):
    """Returns the exit code of check-unit, and its JSON or its error."""
    done = subprocess.run([PIANOLA, "check-unit", f"{folder}/model.lua", "--json"], capture_output=True, text=True)
    return done.returncode, json.loads(done.stdout)["check"] if done.returncode < 2 else done.stderr


def worst(known):
    errors = {g["name"]: g["error"] for g in known["gradients"]}
    return max(errors, key=errors.get, default=None), max(errors.values(), default=0), len(errors)


def kept(folder):
    """Returns the bytes that a block keeps from F to the backward."""
    unit = pathlib.Path(f"{folder}/model.lua").read_text().split("local function block(")[1]
    keeps, stash = re.search(r'keeps = "(\w*)", stash = (\d+)', unit).groups()
    return int(stash) + len(keeps) * 4 * TOKENS.numel() * 64


def check_partition(folder):
    """Exports the small GPT, whose folder is there, with the other partition."""
    torch.manual_seed(0)
    export(SmallGPT(layers=2), "blocks", {"tokens": TOKENS}, f"{folder}/less", quiet=True, partition="min-cut")
    less, more = kept(f"{folder}/less"), kept(folder)
    print(f"min-cut: {less} bytes instead of {more}")
    expect("min-cut keeps less", less < 0.7 * more, (less, more))
    code, known = check(f"{folder}/less")
    expect("min-cut: gradients", code == 0 and worst(known)[1] < 1e-5 and worst(known)[2] == 30, known)
    words = [f"{ROOT}/schedules/zbv.lua", "-D", "workers=2", "--model", f"{folder}/less/model.lua"]
    done = subprocess.run([PIANOLA, "run", *words, "--steps", "3", "--compare", "--json"], capture_output=True, text=True)
    expect("min-cut: one rank's bits", '"one_rank_same_weights": true' in done.stdout, done.stderr[-300:])


for name, (make, layers, inputs, gradients) in MODELS.items():
    with tempfile.TemporaryDirectory() as folder:
        torch.manual_seed(0)
        batch = {"tokens" if layers == "blocks" else "input_ids": TOKENS} | inputs
        export(make(), layers, batch, folder, quiet=True, inputs=dict.fromkeys(inputs))
        # Slopes of LoRA's blocks are too steep for check-unit's differences with random parameters.
        code, known = check(folder)
        compared = code == 0 or (name == "LoRA" and code == 1)
        expect(f"{name}: agrees", compared and abs(known["loss"] / known["known"] - 1) < 1e-6, known)
        if compared:
            print(f"{name:10}{abs(known['loss'] / known['known'] - 1):10.1e}{worst(known)[1]:10.1e}", flush=True)
            expect(f"{name}: gradients", worst(known)[1] < 1e-5 and worst(known)[2] == gradients, worst(known))
        if name != "GPT":
            continue
        check_partition(folder)
        weights, values = load_file(f"{folder}/model.safetensors"), load_file(f"{folder}/check.safetensors")
        changed = dict(weights, **{"blocks.1.up.weight": weights["blocks.1.up.weight"].flip(0)})
        save_file(changed, f"{folder}/model.safetensors")
        code, known = check(folder)
        expect("other weights", code == 1 and worst(known)[1] > 1e-3, (code, known))
        save_file(weights, f"{folder}/model.safetensors")

        # A library whose constants are damaged, and whose hash in the script is the damaged one's.
        library, script = pathlib.Path(f"{folder}/units/block.so"), pathlib.Path(f"{folder}/model.lua")
        code, text = library.read_bytes(), script.read_text()
        gelu = torch.tensor(0.7071067811865475).numpy().tobytes()
        library.write_bytes(code.replace(gelu, torch.tensor(0.6).numpy().tobytes()))
        expect("a library can be damaged", library.read_bytes() != code, "gelu's factor is not there")
        said = check(folder)
        expect("an altered library", said[0] == 2 and "block.so" in str(said[1]), said)
        new = subprocess.run(["sha256sum", str(library)], capture_output=True, text=True).stdout.split()[0]
        old = re.search(r'block.so", sha256 = "(\w+)"', text)[1]
        script.write_text(text.replace(old, new))
        said = check(folder)
        expect("a library that computes something else", said[0] == 1 and worst(said[1])[1] > 1e-3, said)
        library.write_bytes(code)
        script.write_text(text)

        damage = {
            "no loss": ({n: t for n, t in values.items() if n != "loss"}, "has no tensor loss"),
            "short tokens": (values | {"tokens": values["tokens"][:-1].clone()}, "tokens must have 64 numbers of type I32"),
            "floats for tokens": (values | {"tokens": values["tokens"].float()}, "must have 64 numbers of type I32"),
            "another vocabulary": (values | {"targets": values["targets"] + 256}, "takes integers from 0 to 255"),
            "a gradient that is missing": (
                {n: t for n, t in values.items() if n != "gradient.norm.bias"},
                "has no tensor gradient.norm.bias",
            ),
        }
        for what, (tensors, must) in damage.items():
            save_file(tensors, f"{folder}/check.safetensors")
            said = check(folder)
            expect(what, said[0] == 2 and must in said[1] and "check.safetensors" in said[1], said)
        pathlib.Path(f"{folder}/check.safetensors").unlink()
        said = check(folder)
        expect("no file", said[0] == 2 and "check.safetensors: No such file" in said[1], said)
finish()
