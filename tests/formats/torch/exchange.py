"""PyTorch against Pianola, through the schedule CSV. `make test-torch` runs it, and installs PyTorch 2.15 or later, whose
CSV with communication has waits.

1. PyTorch's lowering of each shipped schedule that it can express equals Pianola's, cell for cell.
2. The CSV of each of PyTorch's schedule classes can be imported and is written again without a change.
3. Processes train with exported files over gloo. Their losses equal the whole model's in one process.

Usage: exchange.py PIANOLA SCHEDULE.lua ...
"""
import csv
import os
import subprocess
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining import schedules as pp

pianola, *scripts = sys.argv[1:] if __name__ == "__main__" else [None]
failed = 0


def check(what, wanted, got):
    global failed
    if wanted != got:
        failed += 1
        print(f"{what}: expected\n{wanted}\ngot\n{got}")


def run(*args, stdin=None):
    done = subprocess.run([pianola, *args], input=stdin, capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else done.stderr


def rows_of(text):
    return [row for row in csv.reader(text.splitlines())]


def lowered(rows):
    """Lowers a schedule without communication, as _PipelineScheduleRuntime does when it loads a file."""
    actions = {r: [pp._Action.from_str(c) for c in row] for r, row in enumerate(rows)}
    rank, batches = {}, 0
    for r, row in actions.items():
        for a in row:
            for part in (a and a.sub_actions or [a]) if a else []:
                rank[part.stage_index] = r
                batches = max(batches, part.microbatch_index + 1)
    for r in actions:
        actions[r] = pp._add_reduce_grad(pp._add_unshard_reshard(actions[r]), batches)
    actions = pp._add_send_recv(actions, stage_to_rank=lambda s: rank[s], num_stages=len(rank))
    actions = pp._add_wait_send(actions)
    return [[str(a) for a in actions[r]] for r in sorted(actions)]


def test_lowering():
    told = 0
    for script in scripts:
        jobs = run("show", script, "--format", "torch-csv")
        if "PyTorch's CSV" in jobs:
            continue
        told += 1
        check(f"{script}, lowered", lowered(rows_of(jobs)), rows_of(run("show", script, "--format", "torch-csv-comms")))
    return told


class Stage:
    """The part of a stage's interface that a schedule uses."""

    def __init__(self, index, ranks, stages):
        self.stage_index, self.group_size, self.num_stages, self.group_rank = index, ranks, stages, 0
        self.is_first, self.is_last, self.has_backward = index == 0, index == stages - 1, True
        self.submod, self.group, self.device = torch.nn.Identity(), None, torch.device("cpu")
        self.stage_index_to_group_rank = {s: s % ranks for s in range(stages)}


def test_classes():
    # Not Schedule1F1B: its table counts the last rank's microbatches from 1.
    cases = [(pp.ScheduleGPipe, 4, 1, 8), (pp.ScheduleInterleaved1F1B, 4, 2, 8),
             (pp.ScheduleInterleaved1F1B, 2, 4, 6), (pp.ScheduleLoopedBFS, 4, 2, 8),
             (pp.ScheduleInterleavedZeroBubble, 4, 2, 8), (pp.ScheduleZBVZeroBubble, 4, 2, 8),
             (pp.ScheduleDualPipeV, 4, 2, 10)]
    for make, ranks, chunks, batches in cases:
        stages = [Stage(c * ranks, ranks, chunks * ranks) for c in range(chunks)]
        schedule = make(stages if chunks > 1 else stages[0], batches, loss_fn=torch.nn.functional.mse_loss)
        order = schedule.pipeline_order if chunks > 1 else schedule._get_pipeline_order()
        # The one-stage classes close with REDUCE_GRAD, which the form without communication does not have.
        jobs = [[a if a is None or a.is_compute_op else None for a in order[r]] for r in range(ranks)]
        text = "".join(",".join("" if a is None else str(a) for a in row) + "\r\n" for row in jobs)
        lua = run("import", "-", stdin=text)
        back = run("show", "-", "--format", "torch-csv", stdin=lua)
        check(f"{make.__name__}, imported", [[str(a) for a in row if a] for row in jobs], rows_of(back))
        comms = run("show", "-", "--format", "torch-csv-comms", stdin=lua)
        check(f"{make.__name__}, lowered", lowered(rows_of(text)), rows_of(comms))
        check(f"{make.__name__}, proved", True, "proved" in run("check", "-", stdin=lua))
        check(f"{make.__name__}, lowered and imported", lua.split("return")[1],
              run("import", "-", stdin=comms).split("return")[-1])
    return len(cases)


WIDTH = 16


def layers(n):
    torch.manual_seed(1)
    return [torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh()) for _ in range(n)]


def data(batches):
    torch.manual_seed(2)
    return torch.randn(4 * batches, WIDTH), torch.randn(4 * batches, WIDTH)


def train(rank, meet, path, form, placed, batches, out):
    """Runs one rank of PyTorch's runtime on this file. placed: the stages of each rank."""
    dist.init_process_group("gloo", init_method=f"file://{meet}", rank=rank, world_size=len(placed))
    count = sum(len(p) for p in placed)
    mine = [(s, layers(count)[s]) for s in placed[rank]]
    stages = [PipelineStage(m, s, count, torch.device("cpu")) for s, m in mine]
    runtime = pp._PipelineScheduleRuntime(stages, batches, loss_fn=torch.nn.functional.mse_loss)
    runtime._load_csv(path, format=form)
    optimizer = torch.optim.SGD([w for _, m in mine for w in m.parameters()], lr=0.1)
    x, y = data(batches)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        step = []
        runtime.step(*([x] if 0 in placed[rank] else []), target=y, losses=step)
        losses.append(torch.stack(step).mean().item() if step else None)
        optimizer.step()
    out[rank] = losses
    dist.destroy_process_group()


def alone(count, batches):
    model = torch.nn.Sequential(*layers(count))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = data(batches)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
    return losses


def test_training():
    forms = [("torch-csv", "compute_only"), ("torch-csv-comms", "compute_comms")]
    cases = [("1f1b", 2, 4), ("interleaved", 2, 4), ("zb_h1", 2, 4), ("zbv", 2, 4)]
    here = os.path.dirname(scripts[0])
    for name, ranks, batches in cases:
        for form, theirs in forms:
            text = run("show", f"{here}/{name}.lua", f"-Dworkers={ranks}", f"-Dbatches={batches}", "--format", form)
            jobs = run("show", f"{here}/{name}.lua", f"-Dworkers={ranks}", f"-Dbatches={batches}", "--format", "torch-csv")
            placed = [sorted({pp._Action.from_str(c).stage_index for c in row}) for row in rows_of(jobs)]
            with tempfile.NamedTemporaryFile("w", suffix=".csv") as f, tempfile.TemporaryDirectory() as room, \
                    mp.Manager() as manager:
                f.write(text)
                f.flush()
                out = manager.dict()
                mp.spawn(train, (room + "/meet", f.name, theirs, placed, batches, out), len(placed))
                got = next(v for v in out.values() if v[0] is not None)
            wanted = alone(sum(len(p) for p in placed), batches)
            close = all(abs(a - b) <= 1e-5 * abs(b) for a, b in zip(got, wanted)) and len(got) == len(wanted)
            check(f"{name} {form}: losses", (True, wanted), (close, wanted if close else got))
    return len(forms) * len(cases)


if __name__ == "__main__":
    print(f"PyTorch {torch.__version__}: {test_lowering()} schedules lowered, {test_classes()} classes imported, "
          f"{test_training()} trained; {failed} wrong")
    sys.exit(failed > 0)
