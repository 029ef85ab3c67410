"""Prints the tensors of safetensors files by name, one a line: shape and a hash of the values. Leaves out masks and
other buffers, and the first part of names. tensors.py FILE"""

import hashlib
import json
import struct
import sys

data = open(sys.argv[1], "rb").read()
(n,) = struct.unpack_from("<Q", data)
header = json.loads(data[8 : 8 + n])
header.pop("__metadata__", None)
lines = []
for name, tensor in header.items():
    begin, end = tensor["data_offsets"]
    short = name.split(".", 1)[1] if name.startswith(("model.", "transformer.")) else name
    if not name.endswith(".attn.bias"):
        lines.append(f"{short} {tensor['dtype']} {tensor['shape']} {hashlib.sha256(data[8 + n + begin : 8 + n + end]).hexdigest()}")
print("\n".join(sorted(lines)))
