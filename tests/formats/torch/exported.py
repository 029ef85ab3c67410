"""Exports small random PyTorch models with pianola-export and trains each under several schedules on four
ranks. The losses must equal PyTorch's, of the same model on the same data with AdamW. The weights must equal
one rank's bit for bit, if the schedule adds gradients in one rank's order.

    exported.py PIANOLA DATA [MODEL ...]    with TABLE=FILE: writes a Markdown table of what was measured
                                            with LONG=STEPS: also trains the small GPT for that many steps"""

import itertools
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "export"), str(ROOT / "export" / "examples")]

import numpy
import torch
import transformers as T
from safetensors.torch import load_file
from torch.utils.checkpoint import checkpoint
from transformers.utils.logging import disable_progress_bar, set_verbosity_error

from eager import made, microbatches, train
from judge import expect, finish
from low_rank import low_rank
from pianola_export import export
from sizes import BASE, GROUPED, NO_ENDS
from small_gpt import SmallGPT

set_verbosity_error()
disable_progress_bar()
torch.set_num_threads(1)
PIANOLA, DATA = sys.argv[1:3]
CONTEXT, ROWS, STEPS, RATE = 32, 2, 20, 1e-3
# Schedules, and whether each rank adds up gradients in one rank's order.
SCHEDULES = {"1f1b": True, "zbv": True, "interleaved": True, "fsdp": False, "pipedream": None}

gpt = dict(n_embd=64, n_layer=4, n_head=4, n_positions=64, vocab_size=256)
bert = dict(BASE, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)


def of(kind, layers="model.layers", **config):
    """Returns a maker of transformers' model KIND, and the path of its layers."""
    name = (
        "GPT2Config"
        if kind.startswith("GPT2")
        else (
            "Gemma3TextConfig"
            if kind.startswith("Gemma3")
            else kind.replace("ForCausalLM", "Config").replace("ForMaskedLM", "Config")
        )
    )
    return lambda: getattr(T, kind)(getattr(T, name)(**config)), layers


class Recomputed(torch.nn.Sequential):
    """Has a checkpoint, and a constant that differs in eval mode."""

    def forward(self, x):
        scale = torch.tensor([1.0 if self.training else 0.5])
        return scale * checkpoint(super().forward, x, use_reentrant=False)


class Dropping(SmallGPT):
    """The small GPT with dropout after its embedding, and in each block, which checkpoints it."""

    def __init__(self):
        super().__init__()
        self.positions = torch.nn.Sequential(self.positions, torch.nn.Dropout(0.1))
        for block in self.blocks:
            block.out = Recomputed(block.out, torch.nn.Dropout(0.2))


class Flat(torch.nn.Module):
    """A layer that flattens x, and whose patched forward returns more than x."""

    def __init__(self, width):
        super().__init__()
        self.up = torch.nn.Linear(width, width)
        self.forward = self.patched

    def patched(self, x):
        y = torch.tanh(self.up(x.reshape(-1, x.shape[-1]))).view(x.shape)
        return y, y.sum()


class Unusual(SmallGPT):
    """A model that computes sequence first, in the order of another's memory, and adds in place."""

    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList(Flat(64) for _ in range(4))

    def forward(self, tokens):
        x = self.tokens(tokens)
        x += self.positions(torch.arange(tokens.shape[1]))
        x = x.transpose(0, 1)
        for block in self.blocks:
            x, _ = block(x)
        return self.head(self.norm(x.transpose(0, 1)))


def adapted():
    """The small GPT, of whose blocks only norms and biases are trained."""
    model = SmallGPT()
    for name, p in model.named_parameters():
        p.requires_grad_(p.dim() == 1 or "blocks" not in name)
    return model


def lora():
    """The small GPT, of which only adapters are trained: the token table and the output layer are frozen, too."""
    return low_rank(SmallGPT(), ["qkv", "up"])


def lora_llama():
    """A Llama whose token table, frozen, is also its output matrix."""
    config = T.LlamaConfig(**GROUPED, tie_word_embeddings=True)
    return low_rank(T.LlamaForCausalLM(config), ["q_proj", "v_proj"])


MODELS = {
    "small GPT": (SmallGPT, "blocks"),
    "unusual": (Unusual, "blocks"),
    "frozen": (adapted, "blocks"),
    "LoRA": (lora, "blocks"),
    "LoRA, tied": (lora_llama, "model.layers"),
    "dropout": (Dropping, "blocks"),
    "Llama": of("LlamaForCausalLM", **GROUPED),
    "Llama, tied": of("LlamaForCausalLM", **GROUPED, tie_word_embeddings=True),
    "Qwen2": of("Qwen2ForCausalLM", **GROUPED),
    "Qwen3": of("Qwen3ForCausalLM", **GROUPED, head_dim=16),
    "Mistral": of("MistralForCausalLM", **GROUPED, head_dim=16, sliding_window=16),
    "Gemma3": of(
        "Gemma3ForCausalLM",
        **GROUPED,
        head_dim=16,
        sliding_window=16,
        layer_types=["sliding_attention", "full_attention"] * 2,
    ),
    "OLMo2": of("Olmo2ForCausalLM", **GROUPED),
    "Phi-3": of("Phi3ForCausalLM", **GROUPED),
    "GPT-2": of(
        "GPT2LMHeadModel",
        "transformer.h",
        **gpt,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        **NO_ENDS,
    ),
    "GPT-NeoX": of("GPTNeoXForCausalLM", "gpt_neox.layers", **BASE),
    "Phi": of("PhiForCausalLM", **BASE, resid_pdrop=0.0, embd_pdrop=0.0, attention_dropout=0.0),
    "StableLM": of("StableLmForCausalLM", **GROUPED),
    "Starcoder2": of("Starcoder2ForCausalLM", **GROUPED, embedding_dropout=0.0, residual_dropout=0.0),
    "Granite": of(
        "GraniteForCausalLM", **GROUPED, residual_multiplier=0.5, logits_scaling=2.0, embedding_multiplier=3.0
    ),
    "Cohere": of("CohereForCausalLM", **GROUPED),
    "SmolLM3": of("SmolLM3ForCausalLM", **GROUPED),
    "GLM-4": of("Glm4ForCausalLM", **GROUPED, head_dim=16),
    "OPT": of(
        "OPTForCausalLM",
        "model.decoder.layers",
        **dict(BASE, ffn_dim=128, dropout=0.0, word_embed_proj_dim=64),
    ),
    "Falcon": of("FalconForCausalLM", "transformer.h", **BASE, hidden_dropout=0.0, attention_dropout=0.0),
    "GPT-J": of(
        "GPTJForCausalLM",
        "transformer.h",
        **gpt,
        rotary_dim=8,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        **NO_ENDS,
    ),
    "BLOOM": of(
        "BloomForCausalLM", "transformer.h", hidden_size=64, n_layer=4, n_head=4, vocab_size=256, **NO_ENDS
    ),
    "ModernBERT": of(
        "ModernBertForMaskedLM",
        "model.layers",
        **dict(BASE, global_attn_every_n_layers=2, local_attention=16),
    ),
    "BERT": of("BertForMaskedLM", "bert.encoder.layer", **bert),
}


def run(*words):
    """Returns the JSON of a command, or its error."""
    done = subprocess.run([PIANOLA, *words, "--json"], capture_output=True, text=True, timeout=300)
    if done.returncode:
        return {"error": [line for line in done.stderr.splitlines() if "error" in line][-1:]}
    return json.loads(done.stdout)


def losses(folder, schedule, data=DATA, more=()):
    """Trains under a schedule. Returns the losses, the microbatches of a step, and what `run` says."""
    table = f"{folder}/losses.tsv"
    compare = ["--compare"] if SCHEDULES[schedule] is not None else []
    result = run(
        "run",
        str(ROOT / f"schedules/{schedule}.lua"),
        "--model",
        f"{folder}/model.lua",
        "--weights",
        f"{folder}/model.safetensors",
        "--data",
        data,
        "--steps",
        str(STEPS),
        "--losses",
        table,
        *compare,
        *more,
    )
    if "error" in result:
        return [], 0, result
    rows = [line.split("\t") for line in open(table)][1:]
    return [float(r[2]) for r in rows], int(rows[0][1]), result


def stash_bytes(folder):
    """Returns the bytes that the forward of a microbatch keeps for its backward, in all layers."""
    shown = run("show", str(ROOT / "schedules/serial.lua"), "--model", f"{folder}/model.lua")
    return shown["ranks"][0]["at_peak"]["stash"]


def check(name, make, layers, folder):
    """Exports and trains a model. Returns a row of the table: seconds of the export, bytes of its stash, and for
    each schedule the error of its losses and the seconds of a step."""
    began = time.time()
    model = made(make)
    inputs = {"tokens" if layers == "blocks" else "input_ids": torch.randint(256, (ROWS, CONTEXT))}
    export(model, layers, inputs, out=folder, quiet=True)
    row, eager = {"export": time.time() - began, "stash": stash_bytes(folder)}, {}
    for schedule, exact in SCHEDULES.items():
        got, batches, result = losses(folder, schedule)
        if "error" in result:
            refused = exact is None and "token table" in str(result["error"])
            expect(f"{name}, {schedule}", refused, result["error"])
            row[schedule] = "refused", None
            continue
        step = result["seconds_per_step"]
        if exact is None:
            expect(f"{name}, {schedule}: trains", all(map(math.isfinite, got)) and got[-1] < got[0], got)
            row[schedule] = f"{got[0]:.2f} to {got[-1]:.2f}", step
            continue
        if batches not in eager:
            eager[batches] = train(
                made(make), microbatches(DATA, CONTEXT, ROWS), STEPS, batches, RATE
            )
        if make is Dropping:
            expect(f"{name}, {schedule}: trains", got[-1] < got[0] - 1, got)
            expect(
                f"{name}, {schedule}: one rank's bits", result["one_rank_same_weights"] or not exact, "others"
            )
            row[schedule] = f"{got[0]:.2f} to {got[-1]:.2f}", step
            continue
        worst = max(abs(a / b - 1) for a, b in zip(got, eager[batches]))
        row[schedule] = f"{worst:.1e}", step
        expect(
            f"{name}, {schedule}: PyTorch's losses",
            len(got) == STEPS and worst < 1e-5,
            f"differ by {worst:.1e}",
        )
        bits = result["one_rank_same_weights"]
        expect(
            f"{name}, {schedule}: one rank's bits",
            bits or not exact,
            result.get("one_rank_largest_difference"),
        )
    if make is Dropping:
        check_validation(name, model, folder)
        checked = run("check-unit", f"{folder}/model.lua")
        expect(f"{name}: gradients against differences", "error" not in checked, checked)
    if name == "BERT":
        check_labels(name, make, layers, folder)
    if make in (lora, lora_llama):
        check_frozen(name, model, folder)
    if make is SmallGPT:
        check_ranks(name, folder)
        check_back(name, folder)
        if "LONG" in os.environ:
            check_long(name, folder, os.environ["LONG"])
    return row


def check_labels(name, make, layers, folder):
    """Trains on labels, of which most do not count."""
    text = f"{folder}/text"
    shutil.copy(DATA, text)
    labels = torch.frombuffer(bytearray(open(text, "rb").read()), dtype=torch.uint8).long()
    labels = torch.where(torch.rand(labels.shape) < 0.7, -100, (labels + 1) % 256)
    numpy.save(f"{text}.labels.npy", labels.int().numpy())
    got, batches, result = losses(folder, "1f1b", text, ["-D", "labels=true"])
    data = microbatches(text, CONTEXT, ROWS, labels=labels)
    must = train(made(make), data, STEPS, batches or 8, RATE)
    worst = max((abs(a / b - 1) for a, b in zip(got, must)), default=1)
    expect(f"{name}: PyTorch's losses on labels", worst < 1e-5, result.get("error", worst))


def check_ranks(name, folder):
    """Runs the ranks' own programs from a folder that was moved, while the model's folder has no units."""
    flags = ["--weights", f"{folder}/model.safetensors", "--data", DATA, "--steps", "3", "--json"]
    must = run("run", str(ROOT / "schedules/zbv.lua"), "--model", f"{folder}/model.lua", *flags[:-1])[
        "weights"
    ]
    compiled = subprocess.run(
        [
            PIANOLA,
            "compile",
            str(ROOT / "schedules/zbv.lua"),
            "--model",
            f"{folder}/model.lua",
            "-o",
            f"{folder}/compiled",
        ],
        capture_output=True,
        text=True,
    )
    expect(f"{name}: compiles", compiled.returncode == 0, compiled.stderr[-500:])
    os.rename(f"{folder}/units", f"{folder}/away")
    os.rename(f"{folder}/compiled", f"{folder}/moved")
    paths = dict(os.environ, PKG_CONFIG_PATH=str(pathlib.Path(PIANOLA).resolve().parent))
    made = subprocess.run(["make", "-s", "-C", f"{folder}/moved"], capture_output=True, text=True, env=paths)
    expect(f"{name}: ranks' programs are built", made.returncode == 0, made.stderr[-500:])
    where = [
        "--world-size",
        "4",
        "--master-addr",
        f"127.{os.getpid() // 250 % 250 + 1}.{os.getpid() % 250}.77",
        "--master-port",
        "29511",
    ]
    ranks = [
        subprocess.Popen(
            [f"{folder}/moved/rank{k}", "--rank", str(k), *where, *flags],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for k in range(4)
    ]
    said = [r.communicate(timeout=120) for r in ranks]
    os.rename(f"{folder}/away", f"{folder}/units")
    good = all(r.returncode == 0 for r in ranks) and json.loads(said[0][0])["weights"] == must
    expect(f"{name}: ranks as processes train to the bits of `run`", good, said[0][1][-500:])


def check_frozen(name, model, folder):
    """Exports a trained model's weights: frozen ones have the bits that they had, the others have not."""
    saved, flags = f"{folder}/saved", ["--model", f"{folder}/model.lua"]
    run(
        "run",
        str(ROOT / "schedules/zbv.lua"),
        *flags,
        "--data",
        DATA,
        "--weights",
        f"{folder}/model.safetensors",
        "--steps",
        "3",
        "--checkpoint",
        saved,
    )
    run("export-weights", saved, "--names", "hf", *flags, "-o", f"{folder}/back")
    first, last = (load_file(f"{folder}/{where}model.safetensors") for where in ("", "back/"))
    expect(f"{name}: exports all parameters", first.keys() == last.keys(), first.keys() ^ last.keys())
    for n, p in model.named_parameters():
        if n in first and n in last:
            same = torch.equal(first[n], last[n])
            expect(f"{name}: {n} is {'trained' if p.requires_grad else 'frozen'}", same != p.requires_grad, same)


def check_back(name, folder):
    """Loads the weights of a checkpoint into PyTorch. PyTorch's loss must equal Pianola's."""
    saved = f"{folder}/saved"
    run(
        "run",
        str(ROOT / "schedules/1f1b.lua"),
        "--model",
        f"{folder}/model.lua",
        "--weights",
        f"{folder}/model.safetensors",
        "--data",
        DATA,
        "--steps",
        "3",
        "--checkpoint",
        saved,
    )
    run("export-weights", saved, "--names", "hf", "--model", f"{folder}/model.lua", "-o", f"{folder}/back")
    model = SmallGPT()
    model.load_state_dict(load_file(f"{folder}/back/model.safetensors"))
    check_validation(f"{name}, loaded back", model, folder, f"{folder}/back/model.safetensors")


def taken_kib(process):
    """Returns the memory that a process has taken so far, or None if it has ended."""
    lines = open(f"/proc/{process.pid}/status").read().splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("VmData:")), None)


def check_long(name, folder, steps):
    """Trains for many steps, on four ranks and on one: the weights have the same bits, and after a tenth of the steps
    memory does not grow any more."""
    began, memory, trainings = time.time(), [], {}
    for schedule in ("1f1b", "serial"):
        command = [PIANOLA, "run", str(ROOT / f"schedules/{schedule}.lua"), "-D", "batches=4", "--steps", steps]
        flags = ["--model", f"{folder}/model.lua", "--weights", f"{folder}/model.safetensors", "--data", DATA]
        trainings[schedule] = subprocess.Popen(
            [*command, *flags, "--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
    while trainings["1f1b"].poll() is None:
        memory.append(taken_kib(trainings["1f1b"]))
        time.sleep(0.1)
    out = {schedule: training.communicate()[0] for schedule, training in trainings.items()}
    weights = {schedule: json.loads(text)["weights"] if text else None for schedule, text in out.items()}
    memory = [kib for kib in memory if kib]
    early, late = max(memory[: len(memory) // 10 + 1]), max(memory)
    took = time.time() - began
    print(f"{name}: {steps} steps: weights {weights}, {early} KiB early and {late} KiB at most, {took:.0f} s")
    expect(f"{name}: the bits of one rank after {steps} steps", len(set(weights.values())) == 1, weights)
    expect(f"{name}: memory does not grow in {steps} steps", late == early, f"{early} to {late} KiB")


def check_validation(name, model, folder, weights=None):
    """Compares the loss of the first step's microbatches, in which nothing is dropped."""
    result = run(
        "run",
        str(ROOT / "schedules/serial.lua"),
        "--model",
        f"{folder}/model.lua",
        "--weights",
        weights or f"{folder}/model.safetensors",
        "--data",
        DATA,
        "--steps",
        "0",
    )
    model.eval()
    few = itertools.islice(microbatches(DATA, CONTEXT, ROWS), 8)
    must = [torch.nn.functional.cross_entropy(model(t).flatten(0, 1), y.flatten()).item() for t, y in few]
    expect(f"{name}: PyTorch's loss", abs(result.get("loss", 0) / (sum(must) / 8) - 1) < 1e-6, result)


def cell(what, step):
    return what if step is None else f"{what}, {1e3 * step:.0f}"


def write_table(path, rows):
    """Writes the rows, by model, as Markdown."""
    table = [["model", "export", "stash", *SCHEDULES], ["---", *["---:"] * (2 + len(SCHEDULES))]]
    for name, row in rows.items():
        cells = [cell(*row[s]) for s in SCHEDULES]
        table.append([name, f"{row['export']:.0f}", f"{row['stash'] / 1024:.0f}", *cells])
    pathlib.Path(path).write_text("".join(f"| {' | '.join(row)} |\n" for row in table))


def main():
    wanted, rows = sys.argv[3:] or list(MODELS), {}
    print(f"{'model':14}{'export':>8}" + "".join(f"{s:>14}" for s in SCHEDULES))
    for name in wanted:
        with tempfile.TemporaryDirectory() as folder:
            try:
                row = check(name, *MODELS[name], folder)
            except Exception as e:
                expect(name, False, f"{type(e).__name__}: {str(e)[:600]}")
                continue
        print(f"{name:14}{row['export']:7.1f}s" + "".join(f"{row[s][0]:>14}" for s in SCHEDULES), flush=True)
        rows[name] = row
    if "TABLE" in os.environ:
        write_table(os.environ["TABLE"], rows)
    finish()


main()
