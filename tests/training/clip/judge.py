"""Checks a norm and a clipped update from two checkpoints after a first step of momentum, whose state is the gradient
as it was scaled. Usage: judge.py UNCLIPPED ITS_METRICS CLIPPED ITS_METRICS CLIP"""
import json
import math
import os
import sys
from fractions import Fraction

import numpy as np


def gradients(folder):
    found = {}
    for name in sorted(os.listdir(folder)):
        if not name.endswith('.safetensors'):
            continue
        raw = open(os.path.join(folder, name), 'rb').read()
        n = int.from_bytes(raw[:8], 'little')
        for key, of in json.loads(raw[8:8 + n]).items():
            if key.endswith('.m'):
                found[key] = np.frombuffer(raw[8 + n:][of['data_offsets'][0]:of['data_offsets'][1]], np.float32)
    return found


def norm_in(path):
    return json.loads(open(path).readline())['gradient_norm']


whole, its, clipped, its_clipped, clip = sys.argv[1:]
g, scaled = gradients(whole), gradients(clipped)
total = sum((Fraction(float(x)) ** 2 for v in g.values() for x in v), Fraction(0))
want = math.sqrt(float(total))  # rounds the fraction to the nearest double
assert norm_in(its) == want, f'{norm_in(its)!r} is not {want!r}'
assert norm_in(its_clipped) == want, 'the norm is of what has been clipped'
doubles = math.sqrt(math.fsum(float(x) * float(x) for v in g.values() for x in v))
assert abs(want - doubles) <= 1e-15 * doubles, 'two ways to add up'
factor = np.float32(float(np.float32(float(clip))) / (want + 1e-6))
assert 0 < factor < 1 and g.keys() == scaled.keys() and len(g) > 20
for k in g:
    assert (scaled[k] == factor * g[k]).all(), f'{k} is not scaled by {factor}'
after = math.sqrt(sum(float(x) ** 2 for v in scaled.values() for x in v))
assert abs(after - float(clip)) < 1e-4 * float(clip), f'a norm of {after} is left'
