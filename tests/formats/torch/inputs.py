"""Models with inputs besides the tokens: position ids, masks, a second modality, from files beside the text. Each is
exported and trained on four ranks; the losses must equal PyTorch's, as in exported.py. Files that do not fit are
refused before the training. inputs.py PIANOLA DATA [MODEL ...]"""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "export"), str(ROOT / "export" / "examples")]

import numpy
import torch
import transformers as T
from torch import nn
from torch.nn import functional as F

from eager import made, microbatches, train
from judge import expect, finish
from pianola_export import export
from sizes import GROUPED

T.utils.logging.set_verbosity_error()
torch.set_num_threads(1)
PIANOLA, DATA = sys.argv[1:3]
CONTEXT, ROWS, STEPS, RATE, IMAGE = 32, 2, 20, 1e-3, 6
# Schedules, and whether each rank adds up gradients in one rank's order.
SCHEDULES = {"1f1b": True, "zbv": True, "interleaved": True, "fsdp": False}


class Block(nn.Module):
    """A block that reads a padding mask and a second modality."""

    def __init__(self, width=64, heads=4):
        super().__init__()
        self.heads, self.ln1, self.ln2 = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out, self.look = nn.Linear(width, 3 * width), nn.Linear(width, width), nn.Linear(IMAGE, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, mask, image):
        rows, context, width = x.shape
        x = x + self.look(image)
        q, k, v = self.qkv(self.ln1(x)).view(rows, context, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.out(attended.transpose(1, 2).reshape(rows, context, width))
        return x + self.down(F.gelu(self.up(self.ln2(x))))


class Seeing(nn.Module):
    """A GPT whose positions, padding and pictures are inputs."""

    def __init__(self, width=64):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(256, width), nn.Embedding(64, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(4))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 256)

    def forward(self, tokens, position_ids, padding, image):
        x = self.tokens(tokens) + self.positions(position_ids)
        causal = torch.ones(tokens.shape[1], tokens.shape[1], dtype=torch.bool).tril()
        mask = causal & padding[:, None, None, :] | torch.eye(tokens.shape[1], dtype=torch.bool)
        for block in self.blocks:
            x = block(x, mask, image)
        return self.head(self.norm(x) + image.mean())


class Spaced(Seeing):
    """The same model, whose padding and positions are made from the tokens: spaces do not count. A sequence has 16
    pictures."""

    def forward(self, tokens, pictures):
        counts, seen = tokens != 32, pictures.reshape(len(tokens), 16, IMAGE).mean(1, keepdim=True)
        return super().forward(tokens, counts.cumsum(1), counts, seen.expand(*tokens.shape, IMAGE))


def llama():
    return T.LlamaForCausalLM(T.LlamaConfig(**GROUPED))


def files(count):
    """Returns the inputs of a text of `count` tokens: positions that restart, padding, and pictures."""
    torch.manual_seed(3)
    return {
        "position_ids": (torch.arange(count) % 23),
        "padding": torch.rand(count) > 0.2,
        "attention_mask": (torch.arange(count) % CONTEXT < 20).long(),
        "image": torch.randn(count, IMAGE),
        "pictures": torch.randn(count, 16 * IMAGE // CONTEXT),
    }


MODELS = {
    "GPT": (Seeing, "blocks", {"position_ids": 64, "padding": None, "image": None}),
    "GPT, padding from the tokens": (Spaced, "blocks", {"pictures": None}),
    "Llama": (llama, "model.layers", {"position_ids": 64, "attention_mask": 2}),
}


def run(*words):
    """Returns the JSON of a command, or its error."""
    done = subprocess.run([PIANOLA, *words, "--json"], capture_output=True, text=True, timeout=300)
    if done.returncode:
        return {"error": " ".join(line for line in done.stderr.splitlines() if "error" in line)}
    return json.loads(done.stdout)


def train_here(folder, schedule, text, *more):
    """Trains under a schedule. Returns the losses, the microbatches of a step, and what `run` says."""
    table, model = f"{folder}/losses.tsv", f"{folder}/model.lua"
    words = [f"{ROOT}/schedules/{schedule}.lua", "--model", model, "--weights", f"{folder}/model.safetensors"]
    result = run("run", *words, "--data", text, "--steps", str(STEPS), "--losses", table, *more)
    if "error" in result:
        return [], 0, result
    rows = [line.split("\t") for line in open(table)][1:]
    return [float(r[2]) for r in rows], int(rows[0][1]), result


def save(text, inputs):
    for n, t in inputs.items():
        numpy.save(f"{text}.{n}.npy", t.numpy() if t.is_floating_point() else t.int().numpy())


def check(name, make, layers, named, folder):
    text = f"{folder}/text"
    shutil.copy(DATA, text)
    inputs = {n: t for n, t in files(pathlib.Path(text).stat().st_size).items() if n in named}
    save(text, inputs)
    tokens = "tokens" if layers == "blocks" else "input_ids"
    batch = {n: t[: ROWS * CONTEXT].view(ROWS, CONTEXT, *t.shape[1:]) for n, t in inputs.items()}
    if "pictures" in batch:
        batch["pictures"] = batch["pictures"].view(ROWS, 16, IMAGE)
    batch[tokens] = torch.randint(256, (ROWS, CONTEXT))
    export(made(make), layers, batch, out=folder, inputs=named, quiet=True)
    eager = {}
    for schedule, exact in SCHEDULES.items():
        got, batches, result = train_here(folder, schedule, text, "--compare")
        if batches not in eager:
            data = microbatches(text, CONTEXT, ROWS, inputs=inputs)
            eager[batches] = train(made(make), data, STEPS, batches or 8, RATE)
        worst = max((abs(a / b - 1) for a, b in zip(got, eager[batches])), default=1)
        print(f"{name:30}{schedule:14}{worst:10.1e}", flush=True)
        good = len(got) == STEPS and worst < 1e-5
        expect(f"{name}, {schedule}: PyTorch's losses", good, result.get("error", worst))
        bits = result.get("one_rank_same_weights")
        expect(f"{name}, {schedule}: one rank's bits", bits or not exact, result.get("error", "others"))
    checked = run("check-unit", f"{folder}/model.lua")
    expect(f"{name}: gradients against differences", "error" not in checked, checked)
    if make is Seeing:
        check_files(folder, text, inputs)


def check_files(folder, text, inputs):
    """Files that do not fit the model are refused by name."""
    positions, image = inputs["position_ids"], inputs["image"]
    tokens = len(positions)
    cases = {
        "a short file": ({"position_ids": positions[:-1]}, f"has {tokens - 1} rows of 1 integers, but"),
        "floats for integers": ({"position_ids": positions.float()}, f"has {tokens} rows of 1 floats, but"),
        "integers for floats": ({"image": image.int()}, f"has {tokens} rows of {IMAGE} integers, but"),
        "another width": ({"image": image[:, :-1].contiguous()}, f"has {tokens} rows of {IMAGE - 1} floats, but"),
        "an integer too large": ({"position_ids": positions + 42}, "has 64, but position_ids must be at least 0 and"),
        "a mask of other values": ({"padding": positions}, "has 2, but padding must be at least 0 and less than 2"),
    }
    for name, (changed, must) in cases.items():
        save(text, inputs | changed)
        _, _, result = train_here(folder, "1f1b", text)
        said = result.get("error", "no error")
        expect(name, must in said and f"{text}.{next(iter(changed))}.npy" in said, said)
    pathlib.Path(f"{text}.image.npy").unlink()
    _, _, result = train_here(folder, "1f1b", text)
    expect("a missing file", f"{text}.image.npy: No such file" in result.get("error", ""), result)


for name in sys.argv[3:] or MODELS:
    with tempfile.TemporaryDirectory() as folder:
        try:
            check(name, *MODELS[name], folder)
        except Exception as e:
            expect(name, False, f"{type(e).__name__}: {str(e)[:600]}")
finish()
