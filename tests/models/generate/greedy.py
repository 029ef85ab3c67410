"""Prints the most probable tokens after a text, by numpy (tests/models/import/reference.py): greedy.py MODEL.gguf TEXT N."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../import"))
from reference import Gguf, greedy

tokens, margin = greedy(Gguf(sys.argv[1]), sys.argv[2].encode(), int(sys.argv[3]))
assert margin > 1e-4, margin  # otherwise rounding may choose another one
print(", ".join(map(str, tokens)))
