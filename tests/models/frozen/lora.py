#!/usr/bin/env python3
"""Makes data and weights for lora.lua, and trains that model by numpy, in double precision. Usage:

lora.py make DIR                     text.bin, lora.safetensors and broken variants of it, integers.safetensors
lora.py losses DIR STEPS [tied]      the losses of STEPS steps of gradient descent over all of text.bin, lr = 0.02
lora.py same FILE OTHER [PREFIX...]  the tensors of FILE, of those that begin with PREFIX, that are different in OTHER
"""
import sys

import numpy as np

sys.path.insert(0, 'tests/training/labels')
from labels import load, save, write

VOCAB, WIDTH, RANK, CONTEXT, SEQUENCES, BLOCKS, RATE, EPS = 16, 8, 4, 6, 16, 4, 0.02, 1e-5


def tokens():
    return np.random.default_rng(5).integers(0, VOCAB, SEQUENCES * CONTEXT + 1)


def make(folder):
    draw = np.random.default_rng(6)
    normal = lambda *shape: draw.standard_normal(shape).astype(np.float32)
    all = {'table.weight': normal(VOCAB, WIDTH), 'places.weight': normal(CONTEXT, WIDTH), 'head.weight': normal(VOCAB, WIDTH),
           'last.gain': 1 + normal(WIDTH) / 4}
    for i in range(BLOCKS):
        all |= {f'norm.{i}.weight': 1 + normal(WIDTH) / 4, f'down.{i}.weight': normal(RANK, WIDTH) / 3,
                f'up.{i}.weight': normal(WIDTH, RANK) / 3, f'middle.{i}.weight': normal(WIDTH, WIDTH) / 3,
                f'middle.{i}.bias': normal(WIDTH)}
    save(f'{folder}/lora.safetensors', all)
    without = lambda name: {k: v for k, v in all.items() if not k.startswith(name)}
    save(f'{folder}/adapters.safetensors', {k: v for k, v in all.items() if k.startswith(('down', 'up', 'last'))})
    save(f'{folder}/tied.safetensors', without('head'))
    save(f'{folder}/lacks.safetensors', without('middle.2.bias'))
    save(f'{folder}/shape.safetensors', all | {'norm.1.weight': normal(WIDTH + 1)})
    save(f'{folder}/thawed.safetensors', all | {'middle.1.weight': normal(WIDTH, WIDTH)})
    write(folder, 'text', tokens(), None)
    signed = lambda: (np.eye(8)[draw.permutation(8)] * draw.choice([-1, 1], 8)).astype(np.float32)
    save(f'{folder}/integers.safetensors', {f'l{i}.weight': signed() for i in (1, 4, 7)})


def norm(x, gain, dy=None):
    """Returns the norm of rows, or, of its output's gradient, its input's."""
    r = 1 / np.sqrt((x * x).mean(1, keepdims=True) + EPS)
    return gain * x * r if dy is None else gain * dy * r - x * r**3 * (gain * dy * x).mean(1, keepdims=True)


def train(folder, steps, tied):
    w = {k: v.astype(float) for k, v in load(f'{folder}/lora.safetensors').items()}
    text, losses = tokens(), []
    read, target = text[:-1], text[1:]
    head = w['table.weight' if tied else 'head.weight']
    for _ in range(steps):
        x, kept = w['table.weight'][read] + w['places.weight'][np.arange(len(read)) % CONTEXT], []
        for i in range(BLOCKS):
            n = norm(x, w[f'norm.{i}.weight'])
            low = n @ w[f'down.{i}.weight'].T
            kept.append((x, n, low))
            x = (x + low @ w[f'up.{i}.weight'].T) @ w[f'middle.{i}.weight'].T + w[f'middle.{i}.bias']
        last, gain = x, w['last.gain']
        logits = (last * gain) @ head.T
        logits -= logits.max(1, keepdims=True)
        p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        at = np.arange(len(target)), target
        losses.append(-np.log(p[at]).mean())
        p[at] -= 1
        dlast = p / len(target) @ head
        w['last.gain'] = gain - RATE * (dlast * last).sum(0)
        dx = dlast * gain
        for i in reversed(range(BLOCKS)):
            x, n, low = kept[i]
            up, down = w[f'up.{i}.weight'], w[f'down.{i}.weight']
            dx = dx @ w[f'middle.{i}.weight']
            dlow = dx @ up
            dx_norm = norm(x, w[f'norm.{i}.weight'], dlow @ down)
            w[f'up.{i}.weight'] = up - RATE * dx.T @ low
            w[f'down.{i}.weight'] = down - RATE * dlow.T @ n
            dx = dx + dx_norm
    return losses


def main(what, *args):
    if what == 'make':
        make(*args)
    elif what == 'losses':
        print(*[f'{loss:.9f}' for loss in train(args[0], int(args[1]), args[2:] == ('tied',))], sep='\n')
    else:
        a, b = map(load, args[:2])
        print(*[k for k in sorted(a) if k.startswith(args[2:] or '') and (k not in b or a[k].tobytes() != b[k].tobytes())] or ['same'])


main(*sys.argv[1:])
