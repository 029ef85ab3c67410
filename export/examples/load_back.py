"""Loads weights that Pianola has trained into small_gpt.py's model, and compares the loss of the first step's
microbatches with Pianola's. load_back.py WEIGHTS TEXT LOSS.json"""

import itertools
import json
import pathlib
import sys

import torch
from safetensors.torch import load_file
from torch.nn import functional as F

from small_gpt import SmallGPT

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "formats" / "torch"))
from eager import microbatches

model = SmallGPT()
model.load_state_dict(load_file(sys.argv[1]))
losses = [
    F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten()).item()
    for tokens, targets in itertools.islice(microbatches(sys.argv[2], 32, 2), 8)
]
mine, theirs = sum(losses) / len(losses), json.load(open(sys.argv[3]))["loss"]
print(f"loss {mine:.6f} in PyTorch, {theirs:.6f} in Pianola")
sys.exit(not abs(mine / theirs - 1) < 1e-5)
