"""Reads our traces with other programs, for test.sh.

1. Holistic Trace Analysis loads the output of `show --format hta`, for predictions and for a run. Its figures equal the
   report's, and figures computed from the timeline's rows.
2. Perfetto's own schema parses the output of `show --format pftrace` without unknown fields. It has the same slices on
   the same lanes, arrows and memory as `--format chrome`.

Perfetto's trace processor, which could answer queries, is not used: its package would download it.

Usage: readers.py PIANOLA
"""
import json
import logging
import math
import os
import subprocess
import sys
import tempfile
import warnings

logging.disable(logging.WARNING)
warnings.simplefilter("ignore")

from google.protobuf.unknown_fields import UnknownFieldSet
from hta.trace_analysis import TraceAnalysis
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as schema

pianola = sys.argv[1]
passed = failed = 0


def check(what, wanted, got, within=0):
    global passed, failed
    close = isinstance(wanted, (int, float)) and isinstance(got, (int, float)) and abs(wanted - got) <= within
    if wanted == got or close:
        passed += 1
    else:
        failed += 1
        print(f"{what}: expected {wanted}, got {got}")


def run(*args):
    done = subprocess.run([pianola, *args], capture_output=True)
    if done.returncode:
        sys.exit(done.stderr.decode())
    return done.stdout


# ---- Holistic Trace Analysis ----

MESSAGES = ("SEND", "RECV", "SERVE", "FETCH", "ALL_REDUCE", "REDUCE", "ALL_GATHER", "BROADCAST",
            "ALL_REDUCE_A", "ALL_GATHER_A", "REDUCE_SCATTER_A", "ALL_TO_ALL_A")


def rows_of(text, scale):
    """Returns, per rank, each lane, operation, begin and end, in whole microseconds."""
    lines = [line.split("\t") for line in text.splitlines()]
    at = {name: i for i, name in enumerate(lines[0])}
    ranks = {}
    for line in lines[1:]:
        begin, end = (math.floor(float(line[at[k]]) * scale + 0.5) for k in ("start", "end"))
        ranks.setdefault(int(line[at["rank"]]), []).append((line[at["lane"]], line[at["op"]], begin, end))
    return ranks


def union(spans):
    out = []
    for begin, end in sorted(spans):
        if out and begin <= out[-1][1]:
            out[-1][1] = max(out[-1][1], end)
        else:
            out.append([begin, end])
    return out


def length(spans):
    return sum(end - begin for begin, end in spans)


def common(a, b):
    return sum(max(0, min(x[1], y[1]) - max(x[0], y[0])) for x in a for y in b)


def idle_of(rows, lane):
    spans = sorted((begin, end) for where, _, begin, end in rows if where == lane)
    return sum(after[0] - before[1] for before, after in zip(spans, spans[1:]))


def analyse(what, folder, ranks, slack):
    """ranks: each rank's rows. slack: microseconds by which rounding may change one time."""
    t = TraceAnalysis(trace_dir=folder, include_last_profiler_step=True)
    check(f"{what}: ranks", sorted(ranks), sorted(t.t.traces))
    temporal = t.get_temporal_breakdown(visualize=False).set_index("rank")
    overlap = t.get_comm_comp_overlap(visualize=False).set_index("rank")
    idle, _ = t.get_idle_time_breakdown(ranks=sorted(ranks), visualize=False)
    _, kernels = t.get_gpu_kernel_breakdown(visualize=False, num_kernels=1000)
    for r, rows in ranks.items():
        comm = union((b, e) for _, op, b, e in rows if op.startswith(MESSAGES))
        comp = union((b, e) for _, op, b, e in rows if not op.startswith(MESSAGES))
        both = union((b, e) for _, _, b, e in rows)
        near = slack * 2 * len(rows)
        check(f"{what}: rank {r}'s time", both[-1][1] - both[0][0], temporal["kernel_time(us)"][r], near)
        check(f"{what}: rank {r} computes", length(comp), temporal["compute_time(us)"][r], near)
        check(f"{what}: rank {r} is idle", both[-1][1] - both[0][0] - length(both), temporal["idle_time(us)"][r], near)
        if length(comm):
            check(f"{what}: rank {r} hides messages", 100 * common(comm, comp) / length(comm),
                  overlap["comp_comm_overlap_pctg"][r], 0.01 + slack)
        lanes = list(dict.fromkeys(row[0] for row in rows))
        of = idle[idle["rank"] == r]
        for n, lane in enumerate(lanes):
            check(f"{what}: rank {r} waits in {lane}", idle_of(rows, lane), of[of["stream"] == n + 1]["idle_time"].sum(),
                  near)
    return kernels


def busy_of(kernels, r):
    jobs = kernels[(kernels["rank"] == r) & kernels["name"].isin(list("FRIBW"))]
    return jobs["sum (us)"].sum()


def test_predicted(room, what, *args):
    """A unit of cost is drawn as a millisecond, so nothing is rounded."""
    folder = f"{room}/{what}"
    run("show", *args, "--format", "hta", "-o", folder)
    kernels = analyse(what, folder, rows_of(run("show", *args, "--format", "tsv").decode(), 1000), 0)
    for rank in json.loads(run("show", *args, "--json"))["ranks"]:
        check(f"{what}: rank {rank['rank']} is busy", rank["busy"] * 1000, busy_of(kernels, rank["rank"]), 1e-6)


def test_measured(room, steps):
    what, folder, file = f"a run of {steps} steps", f"{room}/run{steps}", f"{room}/run{steps}.tsv"
    args = ["schedules/1f1b.lua", "--model", "schedules/models/gpt.lua", "-D", "batches=8"]
    run("run", *args, "--steps", str(steps), "--json", "--timeline", file)
    run("show", *args, "--measured", file, "--format", "hta", "-o", folder)
    kernels = analyse(what, folder, rows_of(open(file).read(), 1e6), 1)
    if steps <= 2:  # with one recorded step, that step is the median
        for rank in json.loads(run("show", *args, "--measured", file, "--json"))["ranks"]:
            check(f"{what}: rank {rank['rank']} is busy", rank["busy"] * 1e6, busy_of(kernels, rank["rank"]), 64)


# ---- Perfetto's schema ----


def left_over(message):
    n = len(UnknownFieldSet(message))
    for field, value in message.ListFields():
        if field.message_type:
            n += sum(map(left_over, value if hasattr(value, "append") or hasattr(value, "add") else [value]))
    return n


def read_pftrace(data):
    trace = schema.Trace()
    trace.ParseFromString(data)
    check("pftrace: fields that Perfetto's schema does not have", 0, left_over(trace))
    rank, lane, open_on, slices, levels, instants = {}, {}, {}, [], [], []
    for packet in trace.packet:
        d, e = packet.track_descriptor, packet.track_event
        if packet.HasField("track_descriptor"):
            if d.HasField("process"):
                rank[d.uuid] = d.process.process_name
                check("pftrace: lanes in the order we say", d.EXPLICIT, d.child_ordering)
            elif d.uuid:
                lane[d.uuid] = (rank[d.parent_uuid], d.name, d.sibling_order_rank)
            else:
                check("pftrace: ranks in the order we say", d.PROCESS_ORDERING_EXPLICIT, d.process_ordering)
        elif e.type == e.TYPE_COUNTER:
            levels.append((*lane[e.track_uuid][:2], packet.timestamp, e.counter_value))
        elif e.type == e.TYPE_INSTANT:
            instants.append((rank[e.track_uuid], packet.timestamp, e.name))
        elif e.type == e.TYPE_SLICE_BEGIN:
            args = {a.name: a.int_value for a in e.debug_annotations}
            check("pftrace: a colour for each microbatch", args.get("mb", 0), e.correlation_id)
            slices.append([lane[e.track_uuid][:2], packet.timestamp, None, e.name, list(e.categories), args,
                           list(e.flow_ids), list(e.terminating_flow_ids)])
            open_on.setdefault(e.track_uuid, []).append(slices[-1])
        else:
            open_on[e.track_uuid].pop()[2] = packet.timestamp
    places = [place[::2] for place in lane.values()]
    check("pftrace: two lanes in one place", len(places), len(set(places)))
    return sorted(slices), sorted(levels), sorted(instants)


def nanoseconds(us):
    return round(us * 1000)


def read_chrome(data):
    rank, lane, slices, levels, flows, instants = {}, {}, {}, [], [], []
    for e in json.loads(data)["traceEvents"]:
        if e["ph"] == "M":
            if e["name"] == "process_name":
                rank[e["pid"]] = e["args"]["name"]
            elif e["name"] == "thread_name":
                lane[e["tid"]] = (rank[e["pid"]], e["args"]["name"].split(" ", 1)[1])
        elif e["ph"] == "C":
            levels.append((rank[e["pid"]], "memory", nanoseconds(e["ts"]), e["args"]["bytes"]))
        elif e["ph"] == "i":
            instants.append((rank[e["pid"]], nanoseconds(e["ts"]), e["name"]))
        elif e["ph"] == "X":
            begin = nanoseconds(e["ts"])
            slices[e["tid"], begin, e["name"]] = [lane[e["tid"]], begin, begin + nanoseconds(e["dur"]), e["name"],
                                                  [e["cat"]], e["args"], [], []]
        else:
            flows.append(e)
    for e in flows:
        at = [s for s in slices.values() if s[0] == lane[e["tid"]] and s[1] == nanoseconds(e["ts"])]
        at[-1][6 if e["ph"] == "s" else 7].append(e["id"])
    return sorted(slices.values()), sorted(levels), sorted(instants)


def test_perfetto(what, *args):
    slices, levels, instants = read_pftrace(run("show", *args, "--format", "pftrace"))
    also, memory, marks = read_chrome(run("show", *args, "--format", "chrome"))
    check(f"{what}: slices, and arrows", also, slices)
    check(f"{what}: memory", memory, levels)
    check(f"{what}: where its period begins and ends", marks, instants)


with tempfile.TemporaryDirectory() as room:
    latency = ["--cluster", "schedules/clusters/latency.lua", "-D", "latency=0.25", "-D", "bandwidth=4"]
    for name in ("1f1b", "zbv", "fsdp", "replicated"):
        test_predicted(room, name, f"schedules/{name}.lua", *latency)
        test_perfetto(name, f"schedules/{name}.lua", *latency)
    test_perfetto("a period, twice", "schedules/pipedream.lua", "--steps", "2")
    for steps in (2, 6):
        test_measured(room, steps)
    test_perfetto("a run", "schedules/1f1b.lua", "--model", "schedules/models/gpt.lua", "-D", "batches=8", "--measured",
                  f"{room}/run6.tsv")
print(f"{passed} passed, {failed} failed")
sys.exit(failed > 0)
