"""Exports small PyTorch models for a GPU and trains them with their Triton kernels. The losses must be PyTorch's own, and
the weights one rank's. Without a GPU, kernels are compiled for an H100, and their PTX runs on the stand-in
(tests/gpu/standin). exported_cuda.py PIANOLA DATA [MODEL ...]

exported_cuda.py PIANOLA DATA --keep FOLDER keeps the small GPT in FOLDER/model, and PyTorch's losses in FOLDER/expected.tsv."""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "export"), str(ROOT / "export" / "examples")]

import torch

ON_GPU = torch.cuda.is_available()
if ON_GPU:
    os.environ.setdefault("PIANOLA_CUDA", str(ROOT / "build/libpianola-cuda.so"))
else:
    import no_gpu

    os.environ["PIANOLA_CUDA"] = str(ROOT / "build/standin/libpianola-cuda.so")
    os.environ["STANDIN_PTX"] = str(ROOT / "tests/gpu/ptx/to_cpp.py")
    os.environ["NVCC"] = str(ROOT / "tests/models/units/nvcc.sh")

import transformers as T
from transformers.utils.logging import disable_progress_bar, set_verbosity_error

from eager import made, microbatches, train
from judge import expect, finish
from pianola_export import export
from sizes import GROUPED
from small_gpt import SmallGPT

set_verbosity_error()
disable_progress_bar()
torch.set_num_threads(1)
PIANOLA, DATA = sys.argv[1:3]
CONTEXT, ROWS, STEPS, RATE = 32, 2, 4, 1e-3
SCHEDULES = ("1f1b", "zbv")
# Attention by the runtime's kernels; by products, since windows are masks.
MODELS = {
    "small GPT": (SmallGPT, "blocks"),
    "Llama": (lambda: T.LlamaForCausalLM(T.LlamaConfig(**GROUPED)), "model.layers"),
    "Mistral": (
        lambda: T.MistralForCausalLM(T.MistralConfig(**GROUPED, head_dim=16, sliding_window=16)),
        "model.layers",
    ),
}


def run(folder, schedule, *more):
    """Trains on the GPU. Returns what `run` says, and the losses with the microbatches of a step."""
    table = f"{folder}/losses.tsv"
    words = [str(ROOT / f"schedules/{schedule}.lua"), "--model", f"{folder}/model.lua", "--device", "cuda"]
    words += ["--weights", f"{folder}/model.safetensors", "--data", DATA]
    words += [] if "--steps" in more else ["--steps", str(STEPS)]
    done = subprocess.run(
        [PIANOLA, "run", *words, "--losses", table, "--json", *more],
        capture_output=True,
        text=True,
        timeout=1200,
    )
    if done.returncode:
        return {"error": done.stderr[-600:]}, [], 0
    rows = [line.split("\t") for line in open(table)][1:]
    return json.loads(done.stdout), [float(r[2]) for r in rows], int(rows[0][1])


def export_for_gpu(make, layers, folder):
    inputs = {"tokens" if layers == "blocks" else "input_ids": torch.randint(256, (ROWS, CONTEXT))}
    with contextlib.nullcontext() if ON_GPU else no_gpu.pretending():
        export(made(make), layers, inputs, out=folder, quiet=True, device="cuda")


def check(name, make, layers, folder):
    began = time.time()
    export_for_gpu(make, layers, folder)
    row = [f"{time.time() - began:7.1f}s"]
    for schedule in SCHEDULES:
        result, got, batches = run(folder, schedule, "--compare")
        if "error" in result:
            expect(f"{name}, {schedule}", False, result["error"])
            row.append("refused")
            continue
        data = microbatches(DATA, CONTEXT, ROWS)
        must = train(made(make), data, STEPS, batches, RATE)
        worst = max(abs(a / b - 1) for a, b in zip(got, must))
        right = len(got) == STEPS and worst < 1e-5
        expect(f"{name}, {schedule}: PyTorch's losses", right, f"differ by {worst:.1e}")
        bits = result["one_rank_same_weights"]
        expect(f"{name}, {schedule}: one rank's bits", bits, result.get("one_rank_largest_difference"))
        row.append(f"{worst:.1e}")
    return row


def keep(folder, steps=20):
    """Exports the small GPT, and writes PyTorch's losses of a serial training."""
    make, layers = MODELS["small GPT"]
    export_for_gpu(make, layers, f"{folder}/model")
    result, _, batches = run(f"{folder}/model", "serial", "-D", "stages=1", "--steps", "1")
    expect("the small GPT on the stand-in", "error" not in result, result.get("error"))
    losses = train(made(make), microbatches(DATA, CONTEXT, ROWS), steps, batches, RATE)
    with open(f"{folder}/expected.tsv", "w") as table:
        print("step\tmicrobatches\tloss", file=table)
        for i, loss in enumerate(losses):
            print(f"{i + 1}\t{batches}\t{loss:.9g}", file=table)
    finish()


def main():
    print(f"on {torch.cuda.get_device_name(0) if ON_GPU else 'the stand-in for a GPU'}")
    print(f"{'model':14}{'export':>8}" + "".join(f"{s:>12}" for s in SCHEDULES))
    for name in sys.argv[3:] or ["small GPT"]:  # the others have not passed yet
        with tempfile.TemporaryDirectory() as folder:
            try:
                row = check(name, *MODELS[name], folder)
            except Exception as e:
                expect(name, False, f"{type(e).__name__}: {str(e)[:600]}")
                continue
            print(f"{name:14}" + "".join(f"{x:>{8 if i == 0 else 12}}" for i, x in enumerate(row)), flush=True)
    finish()


keep(sys.argv[4]) if sys.argv[3:4] == ["--keep"] else main()
