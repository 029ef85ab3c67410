"""Writes dumps of PyTorch's flight recorder with known times, after the real ones of samples/flight.

These were dumped by PyTorch 2.15 for 1F1B on two ranks, two microbatches and two steps; its recorder does not see when
gloo's messages are complete. This fills in times as the watchdog of NCCL does: see TIMES.

Usage: flight.py FROM TO FORM CHANGE
FORM: pickle or json. CHANGE: none; objects (Python objects and collectives besides); coalesced (times are in entries of
their own); durations (with duration_ms); hang (rank 1 hangs as it sends the gradient of microbatch 0 in the second
step); lost (the ring buffer has lost rank 0's first entry); lost_hang; group (an unknown process group).
"""
import json
import os
import pickle
import sys

# microseconds: created, started, completed of the messages of one step; the next step's are 1000 later
TIMES = [[(100, 110, 130), (200, 210, 240), (250, 255, 362), (365, 370, 502)],
         [(50, 60, 132), (140, 150, 242), (330, 340, 360), (470, 480, 500)]]
BASE = 1795782198677055000


def nanoseconds(us):
    return BASE + 1000 * us


def fill(entry, times, change):
    created, started, completed = map(nanoseconds, times)
    entry.update(profiling_name=entry["profiling_name"].replace("wrapped", "nccl"), time_created_ns=created,
                 time_discovered_started_ns=started, time_discovered_completed_ns=completed, state="completed")
    if change == "durations":
        entry["duration_ms"] = 0.015
    return entry


def batches(entries):
    """Moves the times of each message to a coalesced entry that follows it."""
    for e in entries:
        yield {**e, "time_discovered_started_ns": None, "time_discovered_completed_ns": None, "state": "scheduled"}
        yield {**e, "profiling_name": "nccl:coalesced", "input_sizes": [], "output_sizes": []}


def objects(entries):
    """Adds what stages exchange before the first step, and an all-reduce after each message."""
    kinds = [{"Long": [[1]]}, {"Byte": [[160]]}]
    for kind in kinds:
        (dtype, sizes), = kind.items()
        e = dict(entries[0])
        side = "input" if "send" in e["profiling_name"] else "output"
        yield {**e, f"{side}_dtypes": [dtype], f"{side}_sizes": sizes, "time_created_ns": nanoseconds(1)}
    for e in entries:
        yield e
        yield {**e, "profiling_name": "nccl:all_reduce", "is_p2p": False}


def hang(entries):
    kept = entries[:7]
    kept[-1].update(time_discovered_completed_ns=None, state="started")
    return kept


def change_dump(rank, dump, change):
    entries = [fill(e, [t + i // 4 * 1000 for t in TIMES[rank][i % 4]], change) for i, e in enumerate(dump["entries"])]
    if change in ("hang", "lost_hang"):
        entries = hang(entries)
    if change in ("lost", "lost_hang") and rank == 0:
        del entries[0]
    if change == "coalesced":
        entries = list(batches(entries))
    if change == "objects":
        entries = list(objects(entries))
    if change == "group" and rank == 1:
        entries[2]["process_group"] = ("7", "other")
    lost = change in ("lost", "lost_hang") and rank == 0
    for i, e in enumerate(entries):
        e["record_id"] = i + lost
    dump["entries"] = entries


def main(source, target, form, change):
    os.makedirs(target, exist_ok=True)
    for rank in (0, 1):
        with open(f"{source}/nccl_trace_rank_{rank}", "rb") as f:
            dump = pickle.load(f)
        change_dump(rank, dump, change)
        name = f"{target}/nccl_trace_rank_{rank}"
        if form == "json":
            with open(name, "w", encoding="utf-8") as f:
                json.dump(dump, f)
        else:
            with open(name, "wb") as f:
                pickle.dump(dump, f, protocol=2)


if __name__ == "__main__":
    main(*sys.argv[1:])
