"""Judges how Pianola reads the traces of PyTorch's profiler: computes each job's time from the raw trace, and compares.

A rank's job runs from the last end of a gloo:recv within its range, or from the range's beginning if there is none, to
the range's end. In a GPipe trace, whose ranges contain the messages, it ends when the output's c10d::send begins.
Two overlapping jobs share their range, so only their durations and starts are compared. Knows nothing of Pianola but
its output: Chrome's trace events, JSON and the account of diff.

Usage: judge.py PIANOLA SCHEDULE FOLDER [SCHEDULE FOLDER ...]
"""
import glob
import json
import re
import subprocess
import sys
from fractions import Fraction

passed = failed = 0


def check(what, wanted, got):
    global passed, failed
    good = wanted == got
    passed += good
    failed += not good
    if not good:
        print(f"{what}: expected {wanted}, got {got}")


def close(what, wanted, got, within):
    """Compares dictionaries of numbers; a few differences are enough to see."""
    check(f"{what}: names", sorted(wanted), sorted(got))
    far = {k: (float(wanted[k]), float(got[k])) for k in wanted if k in got and abs(wanted[k] - got[k]) > within}
    check(what, {}, dict(list(far.items())[:4]))


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode > 1:
        sys.exit(f"{' '.join(command)}: {done.stderr}")
    return done.stdout


def exactly(file):
    """Reads JSON with numbers as fractions: microseconds since 1970 have more digits than a float."""
    with open(file, encoding="utf-8") as f:
        return json.load(f, parse_float=Fraction)


class Raw:
    """One rank's trace: its jobs by step, in microseconds since 1970."""

    def __init__(self, file):
        trace = exactly(file)
        self.rank = trace["distributedInfo"]["rank"]
        base = Fraction(trace.get("baseTimeNanoseconds", 0), 1000)
        events = [(e["name"], e["ts"] + base, e["ts"] + e["dur"] + base) for e in trace["traceEvents"]
                  if e.get("ph") == "X" and e.get("cat") in ("user_annotation", "cpu_op")]
        arrivals = [end for name, _, end in events if name == "gloo:recv"]
        posts = [start for name, start, _ in events if name == "c10d::send"]
        steps = {int(name.split("#")[1]): (start, end) for name, start, end in events if name.startswith("ProfilerStep#")}
        self.pairs = False
        self.jobs = {step: {} for step in steps}
        self.waited = {step: {} for step in steps} # jobs that waited for their input, and when it came
        for name, start, end in events:
            jobs, single = self.jobs_named(name)
            step = next((k for k, (a, b) in steps.items() if a <= start < b), None)
            if not jobs or step is None:
                continue
            if single: # GPipe
                end = min([p for p in posts if start <= p < end], default=end)
            begin = max([a for a in arrivals if start < a <= end], default=start)
            self.jobs[step].update({job: (begin, end) for job in jobs})
            self.pairs |= len(jobs) > 1
            if begin - start >= 100 and len(jobs) == 1:
                self.waited[step][jobs[0]] = begin

    def jobs_named(self, name):
        if m := re.fullmatch(r"PP:(\d+[FBIW]\d+)", name):
            return [m[1]], False
        if m := re.fullmatch(r"PP:\((\d+[FBI]\d+);(\d+[FBI]\d+)\)OVERLAP_F_B", name):
            return [m[1], m[2]], False
        if m := re.fullmatch(r"(Forward|Backward) (\d+)", name):
            return [f"{self.rank}{m[1][0]}{m[2]}"], True
        return [], False


def input_of(job):
    """Returns the name of the receive of a job's input."""
    stage, kind, batch = re.fullmatch(r"(\d+)([FBI])(\d+)", job).groups()
    return f"{int(stage) - 1}RECV_F{batch}" if kind == "F" else f"{int(stage) + 1}RECV_B{batch}"


def causality(what, events):
    """No job begins before its input has arrived, and no message arrives before it was sent."""
    at = {(e["pid"] - 1, e["name"]): (e["ts"], e["ts"] + e["dur"]) for e in events}
    count = 0
    for (r, name), (_, end) in at.items():
        if m := re.fullmatch(r"(\d+)RECV_([FB])(\d+)", name):
            stage = int(m[1]) + (1 if m[2] == "F" else -1)
            jobs = [at[r, job] for job in (f"{stage}{d}{m[3]}" for d in ("F" if m[2] == "F" else "BI")) if (r, job) in at]
            sends = [span for (_, sent), span in at.items() if sent == name.replace("RECV", "SEND")]
            good = len(jobs) == len(sends) == 1 and jobs[0][0] >= end - 0.003 and end >= sends[0][0] - 0.003
            count += 1
            if not good:
                check(f"{what}: {name} on rank {r}", "between its send and its job", (sends, end, jobs))
    check(f"{what}: has messages", True, count > 0)


def judge(pianola, schedule, folder):
    raw = {r.rank: r for r in map(Raw, glob.glob(f"{folder}/*.json"))}
    steps = sorted(next(iter(raw.values())).jobs)
    ranks = sorted(raw)
    check(f"{folder}: several ranks", True, len(ranks) > 1)

    # every job of every step, from Chrome's trace events; process 1 is rank 0
    events = json.loads(run(pianola, "show", schedule, "--measured", folder, "--format", "chrome"))["traceEvents"]
    shown = {}
    for e in events:
        if e["ph"] == "X" and re.fullmatch(r"\d+[FBIW]\d+", e["name"]):
            shown.setdefault(e["args"]["step"], {})[e["pid"] - 1, e["name"]] = e["ts"], e["dur"]
    check(f"{folder}: steps", steps, sorted(shown))
    for step in steps:
        wanted = {(r, job): span for r in ranks for job, span in raw[r].jobs[step].items()}
        got = shown[step]
        first = min(wanted, key=wanted.get)
        close(f"{folder}: durations in step {step}", {k: b - a for k, (a, b) in wanted.items()},
              {k: d for k, (_, d) in got.items()}, 0.002)
        close(f"{folder}: starts in step {step}", {k: a - wanted[first][0] for k, (a, _) in wanted.items()},
              {k: t - got[first][0] for k, (t, _) in got.items()}, 0.003)
        if any(r.pairs for r in raw.values()):
            continue
        spans = [e for e in events if e["ph"] == "X" and e["args"]["step"] == step]
        causality(f"{folder}: step {step}", spans)
        ends = {(e["pid"] - 1, e["name"]): e["ts"] + e["dur"] for e in spans}
        waited = {(r, input_of(job)): t for r in ranks for job, t in raw[r].waited[step].items()}
        close(f"{folder}: arrivals in step {step}", {k: t - wanted[first][0] for k, t in waited.items()},
              {k: ends[k] - got[first][0] for k in waited}, 0.003)
        for r in ranks:
            check(f"{folder}: order of rank {r} in step {step}",
                  sorted(raw[r].jobs[step], key=lambda job: raw[r].jobs[step][job]),
                  [job for _, job in sorted((t, job) for (q, job), (t, _) in got.items() if q == r)])

    report = json.loads(run(pianola, "show", schedule, "--measured", folder, "--json"))
    check(f"{folder}: steps in the report", len(steps), report["measured_steps"])
    if len(steps) == 1 and not any(r.pairs for r in raw.values()): # a median of several need not be the sum of the medians
        busy = {r: sum(b - a for a, b in raw[r].jobs[steps[0]].values()) / 1000000 for r in ranks}
        close(f"{folder}: busy seconds", busy, {r: x["busy"] for r, x in enumerate(report["ranks"])}, 1e-6)

    diff = json.loads(run(pianola, "diff", schedule, folder, "--json"))
    parts = {k: v["b"] for k, v in diff["account"].items() if k != "rank"}
    check(f"{folder}: PyTorch does not wait for memory of Pianola's plan", 0, parts["memory"])
    check(f"{folder}: the account adds up", True, abs(sum(parts.values()) - report["makespan"]) < 1e-9)
    return len(steps) * sum(len(r.jobs[steps[0]]) for r in raw.values())


if __name__ == "__main__":
    binary, *pairs = sys.argv[1:]
    jobs = sum(judge(binary, *pairs[i:i + 2]) for i in range(0, len(pairs), 2))
    print(f"{jobs} jobs")
    print(f"{passed} passed, {failed} failed")
    sys.exit(failed > 0)
