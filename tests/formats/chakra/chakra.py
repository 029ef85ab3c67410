"""Decodes Chakra execution traces of every schedule with protobuf's own library, and simulates them. Knows nothing of
Pianola but its command line: the schema is from schema/protobuf/et_def.proto of mlcommons/chakra, and the rules of the
simulation are ASTRA-sim's (Workload.cc): a node starts once all that it depends on has ended; a send and a receive are
matched by source, destination and tag, and start once both are there; so does a collective of its group's members.

The simulated time must equal the makespan that `show` reports, where links are free or have a latency.

Usage: chakra.py PIANOLA
"""
import glob
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.unknown_fields import UnknownFieldSet

pianola = sys.argv[1]
passed = failed = 0


def check(what, wanted, got):
    global passed, failed
    if wanted == got:
        passed += 1
    else:
        failed += 1
        print(f"{what}: expected {wanted}, got {got}")


# ---- the schema: name: (number, type, repeated) ----

F = descriptor_pb2.FieldDescriptorProto
MESSAGES = {
    "AttributeProto": {"name": (1, F.TYPE_STRING), "double_val": (3, F.TYPE_DOUBLE), "int32_val": (7, F.TYPE_INT32),
                       "int64_val": (9, F.TYPE_INT64), "uint32_val": (11, F.TYPE_UINT32), "uint64_val": (13, F.TYPE_UINT64),
                       "bool_val": (27, F.TYPE_BOOL), "string_val": (29, F.TYPE_STRING)},
    "GlobalMetadata": {"version": (1, F.TYPE_STRING), "attr": (2, "AttributeProto", True)},
    "Node": {"id": (1, F.TYPE_UINT64), "name": (2, F.TYPE_STRING), "type": (3, F.TYPE_INT32),
             "ctrl_deps": (4, F.TYPE_UINT64, True), "data_deps": (5, F.TYPE_UINT64, True),
             "start_time_micros": (6, F.TYPE_UINT64), "duration_micros": (7, F.TYPE_UINT64), "attr": (10, "AttributeProto", True)},
}
MEM_LOAD, MEM_STORE, COMP, SEND, RECV, COLL = range(2, 8)
ALL_REDUCE, REDUCE, ALL_GATHER, BROADCAST, ALL_TO_ALL, REDUCE_SCATTER = 0, 1, 2, 5, 6, 7


def classes():
    file = descriptor_pb2.FileDescriptorProto(name="et_def.proto", package="ChakraProtoMsg", syntax="proto3")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, kind, *repeated) in fields.items():
            label = F.LABEL_REPEATED if repeated else F.LABEL_OPTIONAL
            f = message.field.add(name=field, number=number, label=label)
            if isinstance(kind, str):
                f.type, f.type_name = F.TYPE_MESSAGE, f".ChakraProtoMsg.{kind}"
            else:
                f.type = kind
            if name == "AttributeProto" and field != "name":
                f.oneof_index = 0
        if name == "AttributeProto":
            message.oneof_decl.add(name="value")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return [message_factory.GetMessageClass(pool.FindMessageTypeByName(f"ChakraProtoMsg.{n}")) for n in ("GlobalMetadata", "Node")]


GlobalMetadata, Node = classes()


def messages(path):
    """Yields the bytes of each message of a stream."""
    with open(path, "rb") as file:
        data = file.read()
    at = 0
    while at < len(data):
        size = shift = 0
        while True:
            byte = data[at]
            at += 1
            size |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        assert at + size <= len(data), f"{path}: the last message is cut off"
        yield data[at:at + size]
        at += size


def read(path):
    first, *rest = messages(path)
    head = GlobalMetadata.FromString(first)
    nodes = [Node.FromString(m) for m in rest]
    unknown = sum(len(UnknownFieldSet(m)) for n in (head, *nodes) for m in (n, *n.attr))
    return head.version, unknown, nodes


def attributes(node):
    return {a.name: getattr(a, a.WhichOneof("value")) for a in node.attr}


# ---- the simulation ----

def simulate(ranks, groups, latency):
    """Returns when the last node ends, in microseconds. A message takes the latency, a collective no time."""
    waits, users, ready, meets = {}, defaultdict(list), [], defaultdict(list)
    at = defaultdict(int)  # when all that a node depends on has ended
    for r, nodes in enumerate(ranks):
        turn = defaultdict(int)
        for n in nodes:
            deps = {*n.ctrl_deps, *n.data_deps}
            waits[r, n.id] = len(deps)
            for d in deps:
                users[r, d].append((r, n.id))
            a = attributes(n)
            if n.type in (SEND, RECV):
                meets[r, n.id] = ("message", a["comm_src"], a["comm_dst"], a["comm_tag"])
            elif n.type == COLL:
                meets[r, n.id] = ("group", a["pg_name"], turn[a["pg_name"]])
                turn[a["pg_name"]] += 1
    here, node = defaultdict(list), {(r, n.id): n for r, nodes in enumerate(ranks) for n in nodes}
    todo, ended, last = [key for key, n in waits.items() if n == 0], 0, 0
    while todo:
        key = todo.pop()
        n, place = node[key], meets.get(key)
        if place:
            here[place].append(key)
        if not place:
            ends = [(key, at[key] + n.duration_micros)]
        elif len(here[place]) < (len(groups[place[1]]) if n.type == COLL else 2):
            continue
        else:
            met = max(at[k] for k in here[place])
            ends = [(k, met + latency * (node[k].type == RECV)) for k in here[place]]
        for k, end in ends:
            ended += 1
            last = max(last, end)
            for user in users[k]:
                at[user] = max(at[user], end)
                waits[user] -= 1
                if waits[user] == 0:
                    todo.append(user)
    return last if ended == len(node) else f"{len(node) - ended} of {len(node)} nodes never run"


# ---- the checks ----

def run(*args):
    done = subprocess.run([pianola, *args], capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else None


def check_traces(what, args, room, latency=0):
    folder = os.path.join(room, what.replace("/", "_").replace(" ", "_"))
    report = json.loads(run("show", *args, "--json"))
    trace = ["show", *args, "--format", "chakra", "-o", folder]
    done = subprocess.run([pianola, *trace], capture_output=True, text=True)
    if "a trace has whole steps: add --steps" in done.stderr:
        check(f"{what}: a part of a step is refused, and nothing is written", (2, False), (done.returncode, os.path.exists(folder)))
        run(*trace, "--steps", done.stderr.split()[-1])
    ranks = [read(f"{folder}/trace.{r}.et") for r in range(len(report["ranks"]))]
    check(f"{what}: a file for each rank", len(ranks), len(glob.glob(folder + "/trace.*.et")))
    check(f"{what}: versions, unknown fields", ({"0.0.4"}, 0), ({v for v, _, _ in ranks}, sum(u for _, u, _ in ranks)))
    ranks = [nodes for _, _, nodes in ranks]
    with open(folder + "/groups.json") as file:
        groups = json.load(file)
    ids = [[n.id for n in nodes] for nodes in ranks]
    check(f"{what}: ids are unique, and dependencies exist", True, all(
        len(set(own)) == len(own) and {d for n in nodes for d in (*n.ctrl_deps, *n.data_deps)} <= set(own) for own, nodes in zip(ids, ranks)))
    sent, received, collective = defaultdict(list), defaultdict(list), defaultdict(set)
    for r, nodes in enumerate(ranks):
        turn = defaultdict(int)
        for n in nodes:
            a = attributes(n)
            if n.type in (SEND, RECV):
                (sent if n.type == SEND else received)[a["comm_src"], a["comm_dst"], a["comm_tag"]].append(a["comm_size"])
                assert r == a["comm_src" if n.type == SEND else "comm_dst"]
            elif n.type == COLL:
                assert r in groups[a["pg_name"]], (what, r, a)
                collective[a["pg_name"], turn[a["pg_name"]]].add((a["comm_type"], a["comm_size"]))
                turn[a["pg_name"]] += 1
    check(f"{what}: each send has its receive, of the same size", sent, received)
    check(f"{what}: no two messages share a tag", True, all(len(sizes) == 1 for sizes in sent.values()))
    check(f"{what}: members of a collective agree", True, all(len(kinds) == 1 for kinds in collective.values()))
    microseconds = {"F": 1000, "FLOP": 1e-3, "s": 1e6}[report["unit"]]  # a unit is drawn as a millisecond, a FLOP as a nanosecond
    check(f"{what}: simulated makespan", round(report["makespan"] * microseconds), simulate(ranks, groups, latency))
    return ranks, groups


with tempfile.TemporaryDirectory() as room:
    for path in sorted(glob.glob("schedules/*.lua")):
        if not path.endswith(".d.lua"):
            check_traces(path, [path], room)

    for name in ("1f1b", "interleaved", "zbv", "pipedream", "pipedream_2bw", "pipedream_naive", "pipedream_vertical", "model_parallel"):
        check_traces(f"{name}, a latency", [f"schedules/{name}.lua", "--cluster", "schedules/clusters/latency.lua", "-D", "latency=0.75"], room, 750)

    def sizes(nodes, *kinds):
        return [attributes(n)["comm_size"] for n in nodes if n.type == COLL and attributes(n)["comm_type"] in kinds]

    gpt = ["--model", "schedules/models/gpt.lua"]
    parameters = json.loads(run("check", "schedules/ddp.lua", *gpt, "--json"))["parameters"]
    ranks, groups = check_traces("ddp with a model", ["schedules/ddp.lua", *gpt], room)
    check("ddp sums all gradients, in fp32", 4 * parameters, sum(sizes(ranks[0], ALL_REDUCE)))
    ranks, groups = check_traces("fsdp with a model", ["schedules/fsdp.lua", *gpt], room)
    scattered, members = sizes(ranks[0], REDUCE_SCATTER), len(groups["1"])
    check("fsdp sums all gradients, padded to equal shards", True, 4 * parameters <= sum(scattered) < 4.1 * parameters)
    check("and gathers the weights of the same stages", set(scattered), {size * members for size in sizes(ranks[0], ALL_GATHER)})
    ranks, _ = check_traces("offload with a model", ["schedules/1f1b_offload.lua", *gpt], room)
    stored, loaded = ([attributes(n)["tensor_size"] for nodes in ranks for n in nodes if n.type == kind] for kind in (MEM_STORE, MEM_LOAD))
    check("stashes go to host memory and come back", (True, sorted(stored)), (len(stored) > 0, sorted(loaded)))
    check_traces("a cluster with FLOP per second", ["schedules/1f1b.lua", *gpt, "--cluster", "schedules/clusters/unequal.lua", "-D", "flops=1e9"], room)
print(f"{passed} passed, {failed} failed")
sys.exit(failed > 0)
