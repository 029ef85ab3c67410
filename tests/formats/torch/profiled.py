"""PyTorch's pipelining under its own profiler, read by Pianola. `make test-torch` runs it.

Four processes train over gloo with exported schedules, and with ScheduleGPipe. Each writes a trace of three steps, and
tests/formats/recordings/judge.py compares what Pianola reads there. Schedule1F1B, which names no jobs, is refused.

With KEEP, smaller runs leave their traces in that folder; tests/formats/recordings/cut.py makes the samples from them.

Usage: profiled.py PIANOLA [KEEP]
"""
import os
import subprocess
import sys
import tempfile

os.environ.setdefault("KINETO_LOG_LEVEL", "99") # the profiler would report its own steps

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining import schedules as pp
from torch.profiler import ProfilerActivity, profile, schedule

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "recordings"))
import judge

WIDTH, ROWS = 256, 16
# schedule, class of schedules in place of its CSV, ranks, microbatches
CASES = [("1f1b", None, 4, 8), ("interleaved", None, 4, 8), ("zb_h1", None, 4, 8), ("zbv", None, 4, 8),
         ("dualpipev", None, 2, 6), ("gpipe", "ScheduleGPipe", 4, 4), ("1f1b", "Schedule1F1B", 4, 4)]
SAMPLES = [("1f1b", None, 4, 4), ("interleaved", None, 2, 4), ("zbv", None, 2, 4), ("gpipe", "ScheduleGPipe", 2, 2)]
STEPS = schedule(wait=1, warmup=1, active=3)


def train(rank, meet, how, placed, batches, out):
    """Runs one rank. how: a CSV, or the name of a class of schedules. placed: the stages of each rank."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meet}", rank=rank, world_size=len(placed))
    count = sum(len(p) for p in placed)
    torch.manual_seed(1)
    model = [torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh()) for _ in range(count)]
    stages = [PipelineStage(model[s], s, count, torch.device("cpu")) for s in placed[rank]]
    if how.endswith(".csv"):
        runtime = pp._PipelineScheduleRuntime(stages, batches, loss_fn=torch.nn.functional.mse_loss)
        runtime._load_csv(how)
    else:
        runtime = getattr(pp, how)(stages[0], batches, loss_fn=torch.nn.functional.mse_loss)
    optimizer = torch.optim.SGD([w for s in placed[rank] for w in model[s].parameters()], lr=0.1)
    x, y = torch.randn(ROWS * batches, WIDTH), torch.randn(ROWS * batches, WIDTH)
    with profile(activities=[ProfilerActivity.CPU], schedule=STEPS,
                 on_trace_ready=lambda p: p.export_chrome_trace(f"{out}/rank{rank}.json")) as profiler:
        for _ in range(5):
            optimizer.zero_grad()
            runtime.step(*([x] if 0 in placed[rank] else []), target=y)
            optimizer.step()
            profiler.step()
    dist.destroy_process_group()


def write(pianola, room, name, ranks, batches):
    """Exports a schedule; returns its CSV and the stages of each rank."""
    path = f"{room}/{name}_{batches}.csv"
    subprocess.run([pianola, "show", f"schedules/{name}.lua", f"-Dworkers={ranks}", f"-Dbatches={batches}", "--format",
                    "torch-csv", "-o", path], check=True)
    with open(path, encoding="utf-8") as f:
        rows = [[pp._Action.from_str(cell) for cell in line.strip().split(",")] for line in f]
    return path, [sorted({a.stage_index for cell in row for a in cell.sub_actions or (cell,)}) for row in rows]


def main(pianola, room, cases):
    jobs = 0
    for name, how, ranks, batches in cases:
        path, placed = write(pianola, room, name, ranks, batches)
        out = f"{room}/{how or name}"
        os.makedirs(out)
        mp.spawn(train, (out + ".meet", how or path, placed, batches, out), ranks)
        if how == "Schedule1F1B":
            done = subprocess.run([pianola, "show", path, "--measured", out], capture_output=True, text=True)
            judge.check("Schedule1F1B", True, "Schedule1F1B records none" in done.stderr)
        else:
            jobs += judge.judge(pianola, path, out)
    print(f"PyTorch {torch.__version__}: {jobs} profiled jobs; {judge.passed} passed, {judge.failed} failed")
    return judge.failed > 0


if __name__ == "__main__":
    if len(sys.argv) > 2:
        os.makedirs(sys.argv[2], exist_ok=True)
        sys.exit(main(sys.argv[1], sys.argv[2], SAMPLES))
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(main(sys.argv[1], folder, CASES))
