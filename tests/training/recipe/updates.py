"""An optimizer's update, judged from two checkpoints, of steps 3 and 4 of 10: the gradient follows from the first moment
of both, and the new weights and moments from that, by numpy in doubles. Usage: updates.py FOLDER OPTIMIZER [nesterov]"""
import json
import math
import sys

import numpy as np


def tensors(path):
    raw = open(path, 'rb').read()
    n = int.from_bytes(raw[:8], 'little')
    table = {k: v for k, v in json.loads(raw[8:8 + n]).items() if k != '__metadata__'}
    return {k: np.frombuffer(raw[8 + n:][v['data_offsets'][0]:v['data_offsets'][1]], np.float32).astype(float)
            .reshape(v['shape']) for k, v in table.items()}


def orthogonal(g):
    """Returns Jordan's zeropower_via_newtonschulz5 of an out x in matrix."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g.T if g.shape[0] > g.shape[1] else g
    x = x / (np.linalg.norm(x) + 1e-7)
    for _ in range(5):
        s = x @ x.T
        x = a * x + (b * s + c * s @ s) @ x
    return x.T if g.shape[0] > g.shape[1] else x


folder, name, nesterov = sys.argv[1], sys.argv[2], len(sys.argv) > 3
one, two = (tensors(f'{folder}/step-{step:08d}/stage-0000.safetensors') for step in (3, 4))
t = 3  # the number of updates before this one
x = (t - 2) / 8
cosine = 0.1 + 0.9 * (1 + math.cos(math.pi * x)) / 2
names = [k for k in one if not k.endswith(('.m', '.v'))]
output = max((k for k in names if k.endswith('.weight')), key=lambda k: int(k.split('.')[1]))
hidden = 0
for k in names:
    w, w2 = one[k], two[k]
    m, m2 = one[k + '.m'], two[k + '.m']
    matrix = w.ndim > 1
    if name == 'momentum':
        lr, g = 0.05 * (1 - x), m2 - 0.9 * m
        want = w - lr * (g + 0.9 * m2 if nesterov else m2)
    elif name == 'muon' and k.endswith('.weight') and k != output:
        hidden += 1
        lr, g = 0.02 * cosine, (m2 - 0.95 * m) / 0.05
        move = orthogonal((0.95 * m2 + 0.05 * g).T).T
        want = w - lr * 0.1 * w - lr * math.sqrt(max(1, w.shape[1] / w.shape[0])) * move
    else:
        lr, g = (0.01 if name == 'adamw' else 0.003) * cosine, (m2 - 0.9 * m) / (1 - 0.9)
        v2 = 0.95 * one[k + '.v'] + 0.05 * g * g
        assert np.allclose(two[k + '.v'], v2, rtol=1e-3, atol=1e-7 * v2.max()), f'{k}.v'
        step = m2 / (1 - 0.9**4) / (np.sqrt(two[k + '.v'] / (1 - 0.95**4)) + 1e-8)
        want = w - lr * step - lr * (0.1 * w if matrix else 0)
    far, moved = np.abs(w2 - want).max(), np.abs(w2 - w).max()
    assert moved > 0 and far < 2e-3 * moved, f'{k}: {far} of {moved}'
assert hidden == (8 if name == 'muon' else 0)
