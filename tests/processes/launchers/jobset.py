"""Checks a JobSet against the fields of its custom resource definition, and prints what Kubernetes runs for it.

jobset.py fields CRD.yaml             prints the fields, for jobset.fields: path and type; "!": required, "=": one of
jobset.py check FIELDS FILE.yaml      prints errors, as kubectl's strict validation has them, and what does not fit
jobset.py container FIELDS FILE.yaml  prints the container's environment and command, for a shell
"""
import shlex
import sys

import yaml

# Pods have a thousand fields more. What is below these is left out of the list, and not checked.
OMITTED = ("affinity", "ephemeralContainers", "initContainers", "lifecycle", "livenessProbe", "readinessProbe",
           "startupProbe", "securityContext", "topologySpreadConstraints", "status")
VOLUMES = ("name", "persistentVolumeClaim", "emptyDir", "hostPath", "nfs")


def fields(schema, path, required):
    """Yields a line for the field at path and for each one below it."""
    name = path.rsplit(".", 1)[-1]
    kind = "int-or-string" if schema.get("x-kubernetes-int-or-string") else schema.get("type", "any")
    kind = "map" if "additionalProperties" in schema else kind
    if path:
        yield path + " " + kind + "!" * required + "".join("=" + str(e) for e in schema.get("enum", []))
    if name in OMITTED:
        return
    if "items" in schema:
        yield from fields(schema["items"], path + "[]", False)
    for key, value in sorted(schema.get("properties", {}).items()):
        if name != "volumes[]" or key in VOLUMES:
            yield from fields(value, path + "." + key, key in schema.get("required", []))


def read_fields(file):
    table = {"": ("object", False, [])}
    for line in open(file):
        if line.startswith("."):
            path, kind = line.split()
            kind, *choices = kind.split("=")
            table[path] = (kind.rstrip("!"), kind.endswith("!"), choices)
    return table


TYPES = {"string": str, "integer": int, "boolean": bool, "array": list, "object": dict, "map": dict}


def check(table, value, path, where):
    kind, _, choices = table[path]
    wanted = TYPES.get(kind, object)
    if not isinstance(value, wanted) or isinstance(value, bool) and wanted is int:
        yield f"{where}: {value!r} is no {kind}"
    elif choices and value not in choices:
        yield f"{where}: {value!r} is none of {', '.join(choices)}"
    elif kind == "array":
        for i, item in enumerate(value):
            yield from check(table, item, path + "[]", f"{where}[{i}]")
    elif kind == "object" and path.rsplit(".", 1)[-1] not in OMITTED + ("metadata",):
        for key, item in value.items():
            if path + "." + key in table:
                yield from check(table, item, path + "." + key, f"{where}.{key}")
            else:
                yield f"{where}.{key}: no such field"
        for field, (_, required, _) in table.items():
            above, _, key = field.rpartition(".")
            if required and key and above == path and key not in value:
                yield f"{where}.{key}: missing"


def fit(jobset):
    """Yields errors that no schema shows: each rank needs a pod, and they meet at the first one's name."""
    name, ranks = jobset["metadata"]["name"], jobset["spec"]["replicatedJobs"][0]
    job = ranks["template"]["spec"]
    env = {e["name"]: e.get("value") for e in job["template"]["spec"]["containers"][0]["env"]}
    if not str(job["completions"]) == str(job["parallelism"]) == env["WORLD_SIZE"]:
        yield "completions, parallelism and WORLD_SIZE differ"
    if job["completionMode"] != "Indexed":
        yield "pods without an index"
    if env["MASTER_ADDR"] != f"{name}-{ranks['name']}-0-0.{name}":
        yield f"MASTER_ADDR is {env['MASTER_ADDR']}, but the first pod {name}-{ranks['name']}-0-0.{name}"


def container(jobset):
    box = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0]
    for e in box["env"]:
        print("export " + e["name"] + "=" + shlex.quote(e.get("value", "a secret that only the ranks know")))
    print("exec " + shlex.join(box["command"]))


def main(what, file, *more):
    if what == "fields":
        version = yaml.safe_load(open(file))["spec"]["versions"][0]
        print("\n".join(fields(version["schema"]["openAPIV3Schema"], "", False)))
        return
    jobset = yaml.safe_load(open(more[0]))
    if what == "check":
        wrong = list(check(read_fields(file), jobset, "", ""))
        print("\n".join(wrong or fit(jobset)))
    else:
        container(jobset)


main(*sys.argv[1:])
