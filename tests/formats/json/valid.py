#!/usr/bin/env python3
"""Checks a command's JSON against compiler/formats/schema.json.

valid.py NAME FILE [NAME FILE]...   NAME: one of the schema's $defs; prints what is wrong, a line each; exits 1 if
anything is

A field that the schema does not name is wrong, so a new one must be described there.
"""
import json
import os
import sys

from jsonschema import Draft202012Validator as Validator

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../..")
SCHEMA = json.load(open(os.path.join(ROOT, "compiler/formats/schema.json")))


def wrong(name, text):
    """Returns the first few errors of a text, as strings."""
    try:
        value = json.loads(text, parse_constant=lambda word: sys.exit(f"{word} is no JSON"))
    except ValueError as error:
        return [f"no JSON: {error}"]
    judge = Validator({**SCHEMA, "$ref": "#/$defs/" + name})
    return [f"{'.'.join(map(str, error.absolute_path))}: {error.message[:200]}" for error in judge.iter_errors(value)][:5]


if __name__ == "__main__":
    names, paths = sys.argv[1::2], sys.argv[2::2]
    found = [f"{path}: {line}" for name, path in zip(names, paths) for line in wrong(name, open(path).read())]
    print("\n".join(found), end="\n" if found else "")
    sys.exit(bool(found))
