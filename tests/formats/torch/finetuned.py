"""SmolLM2-135M, a published model, fine-tuned from its own PyTorch code: transformers' model with the weights of a GGUF
file is exported, and trained on four ranks under 1F1B. Our own layers, trained on the same weights and tokens, must have the
same losses, and so must PyTorch. Then only adapters of low rank are trained, and all else is frozen.

finetuned.py PIANOLA GGUF TEXT [LAYERS]          compares losses; LAYERS: only the first ones of the model
finetuned.py speed PIANOLA GGUF TEXT [LAYERS]    compares speed

speed: units, our own layers, and torch.distributed.pipelining's Schedule1F1B, at its best (tests/bench/torch_speed.py), in
turns. Each has a process per rank, one thread each, fp32, the same microbatches and AdamW, and layers divided by their
cost. A side's figure is the median of its steps in all rounds."""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "export"), str(ROOT / "tests" / "bench")]

import numpy
import torch
import torch_speed
from torch import nn

CONTEXT, ROWS, BATCHES, RANKS = 128, 1, 8, 4
STEPS, ROUNDS, WARM, RATE = 5, 2, 1, 1e-4
HEAD = 8  # what the output matrix costs, in layers


def model_of(gguf, layers):
    """Returns the published model, or its first layers, and the number of these."""
    from transformers import AutoModelForCausalLM
    from transformers.utils.logging import disable_progress_bar, set_verbosity_error

    set_verbosity_error()
    disable_progress_bar()
    folder, file = os.path.split(gguf)
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32)
    model.model.layers = model.model.layers[:layers]
    model.config.num_hidden_layers = len(model.model.layers)
    return model, len(model.model.layers)


def exported(model, folder):
    from pianola_export import export

    machine = "x86-64-v4" if " avx512bw " in open("/proc/cpuinfo").read() else "x86-64-v3"
    batch = {"input_ids": torch.zeros(ROWS, CONTEXT, dtype=torch.long)}
    export(model.train(), "model.layers", batch, folder, machine=machine, quiet=True)


def tokenized(pianola, gguf, text, path, tokens):
    """Writes the first tokens of a text. Returns them."""
    subprocess.run(
        [pianola, "tokenize", text, "--tokenizer", gguf, "-o", path], check=True, capture_output=True
    )
    header = numpy.fromfile(path, numpy.int32, 256)
    ids = numpy.fromfile(path, numpy.uint16, offset=1024)[:tokens]
    header[2] = tokens
    with open(path, "wb") as f:
        f.write(header.tobytes() + ids.tobytes())
    return torch.from_numpy(ids.astype(numpy.int64))


def scripts(folder, layers):
    """Returns the flags of the two models: of units, and of our own layers."""
    sizes = {"size": "SmolLM2-135M", "layers": layers, "context": CONTEXT, "rows": ROWS, "lr": RATE}
    own = [f for k, v in sizes.items() for f in ("-D", f"{k}={v}")]
    return {
        "units": ["--model", f"{folder}/model.lua", "-D", f"lr={RATE}", "-D", "beta2=0.95"],
        "own layers": ["--model", str(ROOT / "schedules/models/llama.lua"), *own],
    }


# ---- losses ----


def trained(pianola, script, folder, data, *more):
    """Returns the losses of a training on four ranks."""
    flags = ["--weights", f"{folder}/model.safetensors", "--data", data, "--losses", f"{folder}/losses"]
    schedule = [str(ROOT / "schedules/1f1b.lua"), "-D", f"batches={BATCHES}", "--steps", str(STEPS)]
    done = subprocess.run(
        [pianola, "run", *schedule, *script, *flags, *more], capture_output=True, text=True, timeout=1800
    )
    if done.returncode:
        return [done.stderr[-500:]]
    return [float(line.split("\t")[2]) for line in open(f"{folder}/losses").readlines()[1:]]


def apart(a, b):
    """Returns the largest relative difference of two lists of losses, or what was said instead of them."""
    if len(a) != len(b) or not all(isinstance(x, float) for x in (*a, *b)):
        return next((x for x in (*a, *b) if isinstance(x, str)), f"{len(a)} and {len(b)} losses")
    return max(abs(x / y - 1) for x, y in zip(a, b))


def check(pianola, gguf, text, layers=None):
    from eager import microbatches, train
    from judge import expect, finish
    from low_rank import low_rank

    torch.set_num_threads(2)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as room:
        ids = tokenized(pianola, gguf, text, f"{room}/data", 20000)
        for what in ("all parameters", "adapters"):
            model, n = model_of(gguf, layers)
            model = model if what == "all parameters" else low_rank(model, ["q_proj", "v_proj"], 8)
            folder = f"{room}/{what.split()[0]}"
            began = time.time()
            exported(model, folder)
            print(f"{what}: exported {n} layers in {time.time() - began:.0f} s", flush=True)
            script = scripts(folder, n)
            units = trained(pianola, script["units"], folder, f"{room}/data")
            eager = train(
                model, microbatches(ids, CONTEXT, ROWS), STEPS, BATCHES, RATE, betas=(0.9, 0.95)
            )
            sides = {"PyTorch": eager}
            if what == "all parameters":
                sides["own layers"] = trained(pianola, script["own layers"], folder, f"{room}/data")
            for name, losses in sides.items():
                error = apart(units, losses)
                print(f"{what}: units {units} and {name} {losses}: at most {error} apart", flush=True)
                expect(f"{what}: the losses of {name}", isinstance(error, float) and error < 1e-4, error)
            expect(f"{what}: they fall", units[-1] != units[0] and units[-1] < units[0], units)
    finish()


# ---- speed: PyTorch's side, one rank, in a process of its own ----


def shares(layers, ranks):
    """Returns where each rank's layers begin and end, such that the ranks cost about the same. The last one
    also has the output matrix."""
    rest = layers - max(0, round((layers + HEAD) / ranks) - HEAD)
    ends = [rest * r // (ranks - 1) for r in range(ranks)] + [layers]
    return list(zip(ends[:-1], ends[1:]))


class Stage(nn.Module):
    def __init__(self, model, first, last, ends):
        super().__init__()
        self.embed = model.model.embed_tokens if first == 0 else None
        self.layers, self.rotary = model.model.layers[first:last], model.model.rotary_emb
        self.norm, self.head = (model.model.norm, model.lm_head) if ends else (None, None)
        self.table = self.embed.weight if self.embed else self.head.weight if ends else None

    def forward(self, x):
        x = self.embed(x) if self.embed else x
        angles = self.rotary(x, torch.arange(x.shape[1])[None])
        for layer in self.layers:
            x = layer(x, attention_mask=None, position_embeddings=angles)
            x = x[0] if isinstance(x, tuple) else x
        return self.head(self.norm(x)) if self.head else x


def rank_of_torch(rank, ranks, layers, room, port):
    import torch.distributed as dist
    from safetensors.torch import load_file
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(f"{room}/config"), dtype=torch.float32)
    model.load_state_dict(load_file(f"{room}/units/model.safetensors"), strict=False)
    stage = Stage(model, *shares(layers, ranks)[rank], rank == ranks - 1)
    ids = torch.from_numpy(numpy.fromfile(f"{room}/data.txt", numpy.uint16, offset=1024).astype(numpy.int64))
    x, target = ids[:-1].view(-1, CONTEXT), ids[1:].view(-1, CONTEXT)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks)
    ends = dist.new_group([0, ranks - 1])
    optimizer = torch.optim.AdamW(
        stage.parameters(), lr=RATE, betas=(0.9, 0.95), eps=1e-8, weight_decay=0, fused=True
    )
    loss_of = lambda y, t: nn.functional.cross_entropy(y.flatten(0, 1), t.flatten())
    schedule = Schedule1F1B(
        PipelineStage(stage, rank, ranks, torch.device("cpu")), BATCHES, loss_fn=loss_of
    )

    def step():
        losses, last = [], rank == ranks - 1
        schedule.step(*([x] if rank == 0 else []), **(dict(target=target, losses=losses) if last else {}))
        if stage.table is not None:  # both ends of the pipeline have the same table
            dist.all_reduce(stage.table.grad, group=ends)
        optimizer.step()
        optimizer.zero_grad()
        return torch.stack(losses).mean().item() if losses else None

    for _ in sys.stdin:  # each line on stdin starts a round
        seconds, loss = [], []
        for _ in range(WARM + 2):
            began = time.perf_counter()
            loss.append(step())
            seconds.append(time.perf_counter() - began)
        print(json.dumps(dict(seconds=seconds, loss=loss)), flush=True)
    dist.destroy_process_group()


# ---- speed: all sides ----


def compiled(pianola, script, out):
    quiet = dict(check=True, stdout=subprocess.DEVNULL)
    schedule = [str(ROOT / "schedules/1f1b.lua"), "-D", f"workers={RANKS}", "-D", f"batches={BATCHES}"]
    subprocess.run([pianola, "compile", *schedule, *script, "-o", out], **quiet)
    paths = os.environ | {"PKG_CONFIG_PATH": str(ROOT / "build")}
    subprocess.run(["make", "-s", "-C", out], env=paths, **quiet)


def speed(pianola, gguf, text, layers=None):
    model, layers = model_of(gguf, layers)
    with tempfile.TemporaryDirectory() as room:
        exported(model, f"{room}/units")
        model.config.save_pretrained(f"{room}/config")
        tokenized(pianola, gguf, text, f"{room}/data.txt", BATCHES * ROWS * CONTEXT + 1)
        weights = ["--weights", f"{room}/units/model.safetensors"]
        sides = {}
        for name, script in scripts(f"{room}/units", layers).items():
            out = f"{room}/{name.replace(' ', '_')}"
            compiled(pianola, script, out)
            sides[name] = lambda out=out: torch_speed.pianola_run(
                RANKS, out, "data", room, WARM + 2, *weights
            )
        best = torch_speed.fastest_mkl(room)
        pytorch = torch_speed.Torch(RANKS, str(layers), room, best, __file__)
        sides["PyTorch"] = pytorch.round
        seconds, losses = {name: [] for name in sides}, {}
        for _ in range(ROUNDS):
            for name, side in sides.items():
                took, loss = side()
                seconds[name] += took[WARM:]
                losses.setdefault(name, loss)  # starts PyTorch's next round
        pytorch.end()
        tell(layers, seconds, losses)


def tell(layers, seconds, losses):
    tokens = BATCHES * ROWS * CONTEXT
    rate = {name: tokens / statistics.median(s) for name, s in seconds.items()}
    fastest = {name: tokens / min(s) for name, s in seconds.items()}
    shape = f"{layers} layers, {RANKS} ranks, {BATCHES} microbatches of {ROWS} x {CONTEXT} tokens"
    print(f"{shape}; {os.cpu_count()} cores, PyTorch {torch.__version__}, load {os.getloadavg()[0]:.1f}")
    for name in seconds:
        print(
            f"  {name:12}{rate[name]:8.1f} tokens/s, fastest step {fastest[name]:8.1f}; units are"
            f" {rate['units'] / rate[name]:.2f} and {fastest['units'] / fastest[name]:.2f} times as fast;"
            f" losses {', '.join(f'{x:.4f}' for x in losses[name])}"
        )
    worst = max(torch_speed.largest_difference(losses[name], losses["units"]) for name in losses)
    print(f"  losses at most {worst:.0e} apart")
    sys.exit(worst > 1e-4)


if sys.argv[1] == "--rank":
    rank_of_torch(int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5], int(sys.argv[6]))
elif sys.argv[1] == "speed":
    speed(*sys.argv[2:5], *map(int, sys.argv[5:]))
else:
    check(*sys.argv[1:4], *map(int, sys.argv[4:]))
