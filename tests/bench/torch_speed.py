"""Pianola's ranks on CPUs against PyTorch's own pipelining: the same GPT, cut, ranks, microbatches, weights and text.
`make bench-torch` runs it, with a PyTorch that it installs. torch_speed.py [SIZE ...]; default: all of SIZES.

Pianola: a process for each rank over TCP. PyTorch: torch.distributed.pipelining's Schedule1F1B over gloo, a process for
each rank; on one rank a loop over microbatches. Both: one thread a rank, fp32, AdamW (PyTorch's fused), attention by
scaled_dot_product_attention. "as installed" is PyTorch as pip brings it; "at its best" has MKL take its fastest kernels
on processors that are not Intel's, too. Rounds measure all in turns; a run's figure is the median of its steps, and a
ratio is the median of the rounds' ratios; beside it is the ratio of the fastest steps, which others on the machine
disturb less. The text has as many sequences as a step takes, so both train on the same sum, and their losses are
compared. """
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time

LAYERS, LR, ROUNDS = 4, 3e-3, 3
SIZES = {  # parameters of schedules/models/gpt.lua, whose defaults are the demo's; steps: steps per run
    "demo": dict(width=64, heads=4, context=64, rows=4, batches=8, steps=40),
    "256": dict(width=256, heads=8, context=128, rows=4, batches=8, steps=6),
    "768": dict(width=768, heads=12, context=256, rows=2, batches=4, steps=4),
}
WARM = 2  # warm-up steps, not measured
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))


# ---- PyTorch's side: one rank, in a process of its own ----

def rank_of_torch(rank, ranks, size, room, port):
    import torch
    import torch.distributed as dist
    from safetensors.torch import load_file
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B
    from torch.nn import functional as F

    torch.set_num_threads(1)
    width, heads, context, rows, batches, steps = SIZES[size].values()

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
            self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
            self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

        def forward(self, x):
            n, t, _ = x.shape
            q, k, v = (y.view(n, t, heads, -1).transpose(1, 2) for y in self.qkv(self.norm1(x)).chunk(3, dim=2))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(n, t, width)
            x = x + self.out(y)
            return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))

    class Embedding(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.token, self.position = torch.nn.Embedding(256, width), torch.nn.Parameter(torch.empty(context, width))

        def forward(self, x):
            return self.token(x) + self.position

    def fill(to, name):  # Pianola's linear layers are in x out
        made = weights[name]
        with torch.no_grad():
            to.copy_(made.T if name.endswith("weight") else made)

    def stage_of(first, last):
        parts = [Embedding()] if first == 0 else []
        if first == 0:
            fill(parts[0].token.weight, "layer.0.token")
            fill(parts[0].position, "layer.0.position")
        for i in range(first, last):
            b, at = Block(), 1 + 12 * i
            for norm, n in ((b.norm1, at + 1), (b.norm2, at + 7)):
                fill(norm.weight, f"layer.{n}.gamma")
                fill(norm.bias, f"layer.{n}.beta")
            for linear, n in ((b.qkv, at + 2), (b.out, at + 4), (b.up, at + 8), (b.down, at + 10)):
                fill(linear.weight, f"layer.{n}.weight")
                fill(linear.bias, f"layer.{n}.bias")
            parts.append(b)
        if last == LAYERS:
            at = 1 + 12 * LAYERS
            norm, head = torch.nn.LayerNorm(width), torch.nn.Linear(width, 256)
            fill(norm.weight, f"layer.{at}.gamma")
            fill(norm.bias, f"layer.{at}.beta")
            fill(head.weight, f"layer.{at + 1}.weight")
            fill(head.bias, f"layer.{at + 1}.bias")
            parts += [norm, head]
        return torch.nn.Sequential(*parts)

    def loss_of(y, target):
        return F.cross_entropy(y.view(-1, 256), target.view(-1))

    weights = load_file(f"{room}/{size}.safetensors")
    text = torch.frombuffer(bytearray(open(f"{room}/{size}.txt", "rb").read()), dtype=torch.uint8).long()
    x, target = text[:-1].view(-1, context), text[1:].view(-1, context)
    module = stage_of(rank * LAYERS // ranks, (rank + 1) * LAYERS // ranks)
    optimizer = torch.optim.AdamW(module.parameters(), lr=LR, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0, fused=True)
    if ranks > 1:
        dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks)
        stage = PipelineStage(module, rank, ranks, torch.device("cpu"))
        schedule = Schedule1F1B(stage, batches, loss_fn=loss_of)

    def step():
        if ranks == 1:
            losses = []
            for a, b in zip(x.split(rows), target.split(rows)):
                loss = loss_of(module(a), b)
                (loss / batches).backward()
                losses.append(loss.detach())
        else:
            losses = []
            schedule.step(*([x] if rank == 0 else []), **(dict(target=target, losses=losses) if rank == ranks - 1 else {}))
        optimizer.step()
        optimizer.zero_grad()
        return losses

    for _ in sys.stdin:  # each line on stdin starts a round
        seconds, loss = [], []
        for _ in range(steps):
            begin = time.perf_counter()
            losses = step()
            seconds.append(time.perf_counter() - begin)
            loss.append(torch.stack(losses).mean().item() if losses else None)
        print(json.dumps(dict(seconds=seconds, loss=loss)), flush=True)
    if ranks > 1:
        dist.destroy_process_group()


# ---- measuring both sides ----

def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def run(ranks, command):
    """Runs the processes of all ranks to their end."""
    at = [subprocess.Popen(command(r), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for r in range(ranks)]
    errors = [p.communicate()[1] for p in at]
    for p, error in zip(at, errors):
        if p.returncode != 0:
            sys.exit(f"{' '.join(p.args)}: exit {p.returncode}\n{error}")


class Torch:
    """PyTorch's processes. They wait between rounds, because they take long to start."""

    def __init__(self, ranks, size, room, environment, script=__file__):
        port = free_port()
        self.at = [subprocess.Popen([sys.executable, script, "--rank", str(r), str(ranks), size, room, str(port)],
                                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                    env=os.environ | {"OMP_NUM_THREADS": "1"} | environment) for r in range(ranks)]

    def round(self):
        for p in self.at:
            p.stdin.write("\n")
            p.stdin.flush()
        told = [json.loads(p.stdout.readline()) for p in self.at][-1]  # the last rank has the losses
        return told["seconds"], told["loss"]

    def end(self):
        for p in self.at:
            p.stdin.close()
        for p in self.at:
            p.wait()


def compiled(name, schedule, size, room, *defines):
    out, s = f"{room}/{name}", SIZES[size]
    model = [f"{k}={s[k]}" for k in ("width", "heads", "context", "rows", "batches")] + [f"layers={LAYERS}"]
    flags = [f for d in [*model, *defines] for f in ("-D", d)]
    quiet = dict(check=True, stdout=subprocess.DEVNULL)
    subprocess.run([f"{ROOT}/build/pianola", "compile", f"{ROOT}/schedules/{schedule}.lua", "--model",
                    f"{ROOT}/schedules/models/gpt.lua", *flags, "-o", out], **quiet)
    subprocess.run(["make", "-s", "-C", out], env=os.environ | {"PKG_CONFIG_PATH": f"{ROOT}/build"}, **quiet)
    return out


def pianola_run(ranks, out, size, room, steps, *flags):
    port = free_port()
    run(ranks, lambda r: [f"{out}/rank", "--rank", str(r), "--world-size", str(ranks), "--master-addr", "127.0.0.1",
                          "--master-port", str(port), "--data", f"{room}/{size}.txt", "--steps", str(steps),
                          "--metrics", f"{room}/metrics", *flags])
    lines = [json.loads(line) for line in open(f"{room}/metrics")]
    os.remove(f"{room}/metrics")
    return [line["seconds"] for line in lines], [line["loss"] for line in lines]


def prepare(size, room):
    """Makes a text of one step's sequences, and Pianola's initial weights, by a step with learning rate 0."""
    s = SIZES[size]
    n = s["batches"] * s["rows"] * s["context"] + 1
    text = b"".join(open(f"{ROOT}/{f}", "rb").read() for f in ("schedules/README.md", "runtime/README.md", "README.md"))
    assert len(text) >= n
    open(f"{room}/{size}.txt", "wb").write(text[:n])
    out = compiled(f"{size}.first", "serial", size, room, "lr=1e-30")
    pianola_run(1, out, size, room, 1, "--checkpoint", f"{room}/{size}.saved")
    subprocess.run([f"{ROOT}/build/pianola", "export-weights", f"{room}/{size}.saved", "-o", f"{room}/{size}.safetensors"],
                   check=True, stdout=subprocess.DEVNULL)


def largest_difference(a, b):
    return max(abs(x - y) / y for x, y in zip(a, b))


def products(size):
    """Returns (rows, columns, depth) of a microbatch's products in linear layers, forward and backward."""
    s = SIZES[size]
    rows, width = s["rows"] * s["context"], s["width"]
    shapes = LAYERS * [(width, 3 * width), (width, width), (width, 4 * width), (4 * width, width)] + [(width, 256)]
    return [p for k, n in shapes for p in ((rows, n, k), (rows, k, n), (k, n, rows))]


def attention(size):
    """Returns the FLOP of a microbatch's attention: two products forward, five backward, each over half a square."""
    s = SIZES[size]
    return LAYERS * 7 * s["rows"] * s["context"] ** 2 * s["width"]


def sgemm(size):
    """Returns the seconds that OpenBLAS takes for a step's products, using the fastest of several runs of each."""
    import ctypes
    import numpy as np
    blas = ctypes.CDLL("libopenblas.so.0")
    blas.openblas_set_num_threads(1)
    pointer, real, took = ctypes.c_void_p, ctypes.c_float, {}
    for m, n, k in set(products(size)):
        a, b, c = (np.ones(shape, np.float32) for shape in ((m, k), (k, n), (m, n)))
        best = float("inf")
        for _ in range(15):
            begin = time.perf_counter()
            blas.cblas_sgemm(101, 111, 111, m, n, k, real(1), pointer(a.ctypes.data), k, pointer(b.ctypes.data), n, real(0),
                             pointer(c.ctypes.data), n)
            best = min(best, time.perf_counter() - begin)
        took[m, n, k] = best
    done = sum(2 * m * n * k for m, n, k in products(size))
    linear = sum(took[p] for p in products(size))
    batches = SIZES[size]["batches"]
    return batches * linear * (done + attention(size)) / done, batches * (done + attention(size))


def measure(size, room, best):
    prepare(size, room)
    for ranks in (1, 4):
        out = compiled(f"{size}.{ranks}", "1f1b" if ranks > 1 else "serial", size, room, f"lr={LR}", f"workers={ranks}")
        installed, fastest = Torch(ranks, size, room, {}), Torch(ranks, size, room, best)
        sides = {
            "Pianola": lambda: pianola_run(ranks, out, size, room, SIZES[size]["steps"]),
            "PyTorch as installed": installed.round,
            "PyTorch at its best": fastest.round,
        }
        seconds, fastest_step, losses = {k: [] for k in sides}, {k: float("inf") for k in sides}, {}
        for _ in range(ROUNDS):
            for name, side in sides.items():
                took, loss = side()
                seconds[name].append(statistics.median(took[WARM:]))
                fastest_step[name] = min(fastest_step[name], *took[WARM:])
                losses.setdefault(name, loss)  # starts PyTorch's next round
        installed.end()
        fastest.end()
        of = {k: statistics.median(v) for k, v in seconds.items()}
        apart = max(largest_difference(losses[k], losses["Pianola"]) for k in sides)
        if apart > 1e-5:
            sys.exit(f"{size}, {ranks} ranks: the losses are {apart:.1e} apart: {losses}")
        print(f"{size}, {ranks} rank{'s' * (ranks > 1)}: Pianola {1e3 * of['Pianola']:.1f} ms a step, fastest "
              f"{1e3 * fastest_step['Pianola']:.1f}", end="")
        for name in list(sides)[1:]:
            print(f"; {name} {1e3 * of[name]:.1f}, fastest {1e3 * fastest_step[name]:.1f}, ratios {of[name] / of['Pianola']:.2f} "
                  f"and {fastest_step[name] / fastest_step['Pianola']:.2f}", end="")
        print(f"; {len(losses['Pianola'])} losses, {losses['Pianola'][0]:.4f} to {losses['Pianola'][-1]:.4f}, at most "
              f"{apart:.0e} apart", flush=True)
        if ranks == 1:
            alone = fastest_step["Pianola"]
    ideal, done = sgemm(size)
    print(f"{size}: sgemm's best on these shapes {1e-9 * done / ideal:.0f} GFLOP/s; Pianola's fastest step on one rank "
          f"{1e-9 * done / alone:.0f}, "
          f"{100 * ideal / alone:.0f} %", flush=True)


def fastest_mkl(room):
    """MKL asks whether the processor is Intel's; the answer decides which kernels it takes."""
    with open(f"{room}/mkl.c", "w") as f:
        f.write("int mkl_serv_intel_cpu_true(void) { return 1; }\n")
    subprocess.run(["cc", "-shared", "-fPIC", f"{room}/mkl.c", "-o", f"{room}/mkl.so"], check=True)
    return {"LD_PRELOAD": f"{room}/mkl.so", "MKL_ENABLE_INSTRUCTIONS": "AVX512"}


def main(sizes):
    import torch
    name = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "unknown")
    print(f"{os.cpu_count()} cores of {name}, PyTorch {torch.__version__}, load {os.getloadavg()[0]:.1f} before")
    with tempfile.TemporaryDirectory() as room:
        best = fastest_mkl(room)
        for size in sizes:
            measure(size, room, best)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        rank_of_torch(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5], int(sys.argv[6]))
    else:
        main(sys.argv[1:] or list(SIZES))
