"""Cuts PyTorch traces of pipelines down to the events that Pianola reads, for the samples of this folder.

Keeps the first STEPS steps: the ranges of user_annotation, except gloo:send, and, if messages have no ranges of their own,
the calls that post them. Events keep the fields ph, cat, name, ts and dur. The file keeps baseTimeNanoseconds, and in
distributedInfo backend, rank and world_size.

Usage: cut.py STEPS FROM_FOLDER TO_FOLDER
"""
import glob
import json
import os
import sys

FIELDS = "ph", "cat", "name", "ts", "dur"


def cut(trace, count):
    events = [e for e in trace["traceEvents"] if e.get("ph") == "X" and
              (e.get("cat") == "user_annotation" and e["name"] != "gloo:send" or e["name"] in ("c10d::send", "c10d::recv_"))]
    steps = sorted((e for e in events if e["name"].startswith("ProfilerStep#")), key=lambda e: e["ts"])[:count]
    kept = [e for e in events if any(s["ts"] <= e["ts"] < s["ts"] + s["dur"] for s in steps)]
    if any(e["name"].startswith("PP:") for e in kept): # messages then have ranges of their own
        kept = [e for e in kept if e["cat"] != "cpu_op"]
    return {
        "distributedInfo": {k: trace["distributedInfo"][k] for k in ("backend", "rank", "world_size")},
        "baseTimeNanoseconds": trace["baseTimeNanoseconds"],
        "traceEvents": [{k: e[k] for k in FIELDS} for e in kept],
    }


def main(count, source, target):
    os.makedirs(target, exist_ok=True)
    for file in sorted(glob.glob(f"{source}/*.json")):
        with open(file, encoding="utf-8") as f:
            trace = cut(json.load(f), int(count))
        with open(f"{target}/{os.path.basename(file)}", "w", encoding="utf-8") as f:
            events = ",\n".join(json.dumps(e, separators=(",", ":")) for e in trace.pop("traceEvents"))
            f.write(json.dumps(trace, separators=(",", ":"))[:-1] + f',"traceEvents":[\n{events}]}}\n')


if __name__ == "__main__":
    main(*sys.argv[1:])
