"""Tests model files that contradict their weights or state the impossible: hostile.py PIANOLA FOLDER, with the files of
tests/models/import/files.py. Each must be refused with one message and no output, or give the original file's tokens; some
may give others. Prints those that do neither."""

import json
import os
import shutil
import struct
import subprocess
import sys

pianola, folder = sys.argv[1:3]
room = f"{folder}/hostile"
os.mkdir(room)
ran = refused = 0


def generate(weights):
    command = [pianola, "generate", "--weights", weights, "--prompt", "ab", "--tokens", "2", "--temperature", "0", "--json"]
    return subprocess.run(command, capture_output=True, timeout=60)


def judge(what, weights, free=False):
    global ran, refused
    r = generate(weights)
    # One line names the model; only an error in a script shows its place.
    said = [x for x in r.stderr.decode("utf-8", "backslashreplace").splitlines() if ": using --model " not in x]
    if r.returncode == 2 and "error" in json.loads(r.stdout) and said and "error: " in said[0] and (len(said) == 1 or ".lua:" in said[0]):
        refused += 1
    elif r.returncode == 0 and (free or json.loads(r.stdout)["tokens"] == wanted):
        ran += 1
    else:
        print(f"{what}: {r.returncode} {r.stdout.decode()[-100:]} {said}")


# ---- GGUF ----

data = open(f"{folder}/F32.gguf", "rb").read()
wanted = json.loads(generate(f"{folder}/F32.gguf").stdout)["tokens"]
WIDTH = {4: 4, 6: 4}


def string_end(at):
    return at + 8 + struct.unpack_from("<Q", data, at)[0]


def string(s):
    return struct.pack("<Q", len(s)) + s


tensors, npairs = struct.unpack_from("<QQ", data, 8)
pairs, at = [], 24
for _ in range(npairs):
    end = string_end(at)
    key, kind = data[at + 8 : end], struct.unpack_from("<I", data, end)[0]
    at = end = end + 4
    if kind == 8:
        end = string_end(at)
    elif kind == 9:
        end += 12
        for _ in range(struct.unpack_from("<Q", data, at + 4)[0]):
            end = string_end(end)
    else:
        end += WIDTH[kind]
    pairs.append((key, kind, data[at:end]))
    at = end
tables = at
for _ in range(tensors):
    at = string_end(at)
    at += 4 + 8 * struct.unpack_from("<I", data, at)[0] + 12
header = -(-at // 32) * 32


def write(pairs):
    out = data[:16] + struct.pack("<Q", len(pairs))
    out += b"".join(string(k) + struct.pack("<I", kind) + value for k, kind, value in pairs) + data[tables:at]
    open(f"{room}/a.gguf", "wb").write(out + b"\0" * (-len(out) % 32) + data[header:])


number = lambda kind, x: ({"I": 4, "i": 5, "f": 6, "Q": 10, "q": 11, "d": 12}[kind], struct.pack("<" + kind, x))
VALUES = [number("I", x) for x in (0, 1, 3, 100000, 2**31, 2**32 - 1)] + [
    number("i", -1), number("q", -(2**63)), number("Q", 2**64 - 1), number("f", 2.5), number("f", float("nan")),
    number("f", float("inf")), number("d", 1e300), (7, b"\1"), (8, string(b"")), (8, string(b"\x1b[31m\n\0%s%n")),
    (9, struct.pack("<IQ", 4, 0)), (9, struct.pack("<IQ", 4, 2**62)), (9, struct.pack("<IQ", 8, 2**61)),
    (9, struct.pack("<IQIQ", 9, 1, 4, 1) + bytes(4)), (13, b""), (2**32 - 1, b""),
]
FREE = b"llama.rope.freq_base", b"llama.attention.layer_norm_rms_epsilon", b"general.alignment"
write(pairs)
judge("itself", f"{room}/a.gguf")
for i, (key, _, _) in enumerate(pairs):
    for kind, value in VALUES:
        write(pairs[:i] + [(key, kind, value)] + pairs[i + 1 :])
        judge(f"{key.decode()} of type {kind}, {value[:24]}", f"{room}/a.gguf", key in FREE)
for offset, form in (4, "<I"), (8, "<Q"), (16, "<Q"):
    for x in 0, 1, 2**31, 2 ** (8 * struct.calcsize(form)) - 1:
        changed = bytearray(data)
        struct.pack_into(form, changed, offset, x)
        open(f"{room}/a.gguf", "wb").write(changed)
        judge(f"{x} at byte {offset}", f"{room}/a.gguf")
for end in [*range(0, 40, 3), *range(40, header, 211), *range(header, len(data), 30011), len(data) - 1]:
    open(f"{room}/a.gguf", "wb").write(data[:end])
    judge(f"cut off at byte {end}", f"{room}/a.gguf")



def said(what, wanted, weights):
    """Checks that stderr has `wanted`: an error, or the options passed to the script."""
    r = generate(weights)
    if wanted not in r.stderr.decode():
        print(f"{what}: expected {wanted}, got {r.returncode} {r.stderr.decode()}")


def said_of(what, pairs, wanted):
    write(pairs)
    said(what, wanted, f"{room}/a.gguf")


EPS = b"llama.attention.layer_norm_rms_epsilon"
without_eps = [p for p in pairs if p[0] != EPS]
said_of("half a rope", pairs + [(b"llama.rope.dimension_count", *number("I", 8))],
        "its rope rotates 8 of the 16 columns of a head, but llama.lua's rotates all")
said_of("a factor without a type", pairs + [(b"llama.rope.scaling.factor", *number("f", 4))], "-D rope_factor=4")
said_of("an old factor", pairs + [(b"llama.rope.scale_linear", *number("f", 8))], "-D rope_factor=8")
said_of("a list of heads", pairs + [(b"llama.attention.key_length", 9, struct.pack("<IQ", 4, 1) + bytes(4))],
        "llama.attention.key_length is no number")
said_of("no layers", [p for p in pairs if p[0] != b"llama.block_count"], "does not give its model's layers")
said_of("half a layer", pairs[:2] + [(b"llama.block_count", *number("f", 0.5))] + pairs[2:],
        "says 0.5 for the layers of its model; expected a whole number from 1 to 2147483647")
for more in [], [(EPS, *number("f", 0))], [(EPS, *number("d", 1e-60))]:
    said_of("no eps", without_eps + more, "does not give its norms' eps, a number above 0")
open(f"{room}/tokenizer.json", "w").write("another model's")
write(pairs)
judge("its own tokenizer", f"{room}/a.gguf")

# ---- config.json ----

for file in "F32.safetensors", "tokenizer.json":
    shutil.copy(f"{folder}/{file}", room)
config = json.load(open(f"{folder}/config.json"))
VALUES = ["0", "-1", "2.5", "1e9", "1e308", "1" * 30, "null", "true", '"64"', '""', "[]", "[64]", "{}", '{"a": 1}', "NaN",
          "-", "1\0", "[" * 200, '"' + "a" * 10000 + '"', r'"\u0000"', r'"\ud800"', r'"\u001b[31m"']
FREE = "rope_theta", "rms_norm_eps", "tie_word_embeddings"


def judge_config(what, text, free=False):
    open(f"{room}/config.json", "w").write(text)
    judge(f"config.json, {what}", f"{room}/F32.safetensors", free)


for key in [*config, "head_dim", "rope_parameters", "partial_rotary_factor"]:
    rest = json.dumps({k: v for k, v in config.items() if k != key})[:-1]
    for value in VALUES:
        judge_config(f"{key}: {value[:20]!r}", f'{rest}, "{key}": {value}}}', key in FREE)
    judge_config(f"without {key}", rest + "}", key in FREE)
whole = json.dumps(config)
for end in range(0, len(whole), 11):
    judge_config(f"cut off at byte {end}", whole[:end])
for more, message in (
    ('"hidden_act": "gelu"', 'its hidden_act is not "silu", which models/llama.lua cannot express'),
    ('"use_sliding_window": true', "its use_sliding_window is not false, which models/llama.lua cannot express"),
    ('"partial_rotary_factor": 0.5', "its rope rotates 8 of the 16 columns of a head"),
    ('"model_type": "gpt2", "activation_function": "relu"', 'its activation_function is not "gelu_new"'),
    ('"model_type": "gpt2", "scale_attn_weights": false', "its scale_attn_weights is not true"),
    ('"model_type": "gpt2", "n_positions": 9, "n_inner": 256, "layer_norm_epsilon": 0',
     "does not give its norms' eps, a number above 0"),
):
    judge_config(more, f"{whole[:-1]}, {more}}}")
    said(more, message, f"{room}/F32.safetensors")
open(f"{room}/config.json", "w").write(whole.replace('"model_type": "llama"', '"model_type": "qwen3"'))
said("a Qwen3 without a head_dim, as transformers have it", "-D qk_norm=true -D dim=128", f"{room}/F32.safetensors")
open(f"{room}/config.json", "w").write(whole.replace('"rms_norm_eps": 1e-05, ', ""))
said("without an eps, as transformers have it", "-D eps=1e-06", f"{room}/F32.safetensors")
deep = '"rope_parameters": {' * 1000000
judge_config("a rope in a rope", f"{whole[:-1]}, {deep}{'}' * 1000001}")
assert ran > 100 and refused > 400, (ran, refused)
print("done")
