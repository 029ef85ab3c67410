#!/usr/bin/env python3
"""Makes data with labels and weights for model.lua, and computes by numpy what one step makes of them. Usage:

labels.py make DIR                 text.bin with labels, and variants of it; weights.safetensors
labels.py step DIR NAME            the loss over all of DIR/NAME, and the largest weights after one step of it (lr = 1)
labels.py after DIR NAME FILE      the largest difference of FILE's weights from numpy's after one step
"""
import json
import struct
import sys

import numpy as np

VOCAB, WIDTH, CONTEXT, SEQUENCES = 16, 8, 6, 16


def save(path, tensors):
    header, data = {}, b''
    for name, x in tensors.items():
        header[name] = {'dtype': 'F32', 'shape': list(x.shape), 'data_offsets': [len(data), len(data) + x.nbytes]}
        data += x.tobytes()
    text = json.dumps(header).encode()
    text += b' ' * (-len(text) % 8)
    with open(path, 'wb') as f:
        f.write(struct.pack('<Q', len(text)) + text + data)


def load(path):
    with open(path, 'rb') as f:
        header = json.loads(f.read(struct.unpack('<Q', f.read(8))[0]))
        data = f.read()
    header.pop('__metadata__', None)
    return {k: np.frombuffer(data[slice(*v['data_offsets'])], np.float32).reshape(v['shape']) for k, v in header.items()}


def write(folder, name, tokens, labels):
    with open(f'{folder}/{name}.bin', 'wb') as f:
        f.write(struct.pack('<3i', 20240520, 1, len(tokens)).ljust(1024, b'\0') + tokens.astype('<u2').tobytes())
    if labels is not None:
        np.save(f'{folder}/{name}.bin.labels.npy', labels)


def make(folder):
    draw = np.random.default_rng(5)
    tokens = draw.integers(0, VOCAB, SEQUENCES * CONTEXT + 1)
    labels = np.where(draw.random(len(tokens)) < 0.4, -100, draw.integers(0, VOCAB, len(tokens)))
    labels[1:2 * CONTEXT + 1] = -100  # two sequences without any label
    write(folder, 'text', tokens, labels)
    write(folder, 'all', tokens, tokens.astype(np.int32))
    write(folder, 'plain', tokens, None)
    write(folder, 'none', tokens, np.full(len(tokens), -100))
    write(folder, 'short', tokens, labels[:-1])
    write(folder, 'floats', tokens, labels.astype(np.float32))
    write(folder, 'large', tokens, np.where(labels == labels.max(), VOCAB, labels))
    write(folder, 'halves', tokens, labels.astype('>i4'))
    write(folder, 'held', tokens[:5 * CONTEXT + 1], labels[10:5 * CONTEXT + 11].astype(np.int16))
    with open(f'{folder}/broken.bin.labels.npy', 'wb') as f:
        f.write(b'\x93NUMPY\x01\x00')
    write(folder, 'broken', tokens, None)
    save(f'{folder}/weights.safetensors',
         {name: draw.standard_normal(shape).astype(np.float32) / 2
          for name, shape in (('table.weight', (VOCAB, WIDTH)), ('inner.weight', (WIDTH, WIDTH)),
                              ('outer.weight', (WIDTH, WIDTH)), ('head.weight', (VOCAB, WIDTH)))})


def step(folder, name):
    """Returns the mean loss over the labels that count, and the weights after one step."""
    with open(f'{folder}/{name}.bin', 'rb') as f:
        tokens = np.frombuffer(f.read()[1024:], '<u2').astype(int)
    labels = np.load(f'{folder}/{name}.bin.labels.npy').astype(int)
    w = {k: v.astype(float) for k, v in load(f'{folder}/weights.safetensors').items()}
    x, y = tokens[:-1], labels[1:]
    x, y = x[y >= 0], y[y >= 0]
    e = w['table.weight'][x]
    h = e @ w['inner.weight'].T
    o = h @ w['outer.weight'].T
    z = o @ w['head.weight'].T
    p = np.exp(z - z.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    n = np.arange(len(y))
    loss = -np.log(p[n, y]).mean()
    p[n, y] -= 1
    p /= len(y)
    do = p @ w['head.weight']
    dh = do @ w['outer.weight']
    de = dh @ w['inner.weight']
    w['head.weight'] -= p.T @ o
    w['outer.weight'] -= do.T @ h
    w['inner.weight'] -= dh.T @ e
    np.subtract.at(w['table.weight'], x, de)
    return loss, w


def difference(folder, name, exported):
    own, w = load(exported), step(folder, name)[1]
    same = {'layer.0.token': w['table.weight'], 'layer.1.weight': w['inner.weight'].T, 'layer.2.weight': w['outer.weight'].T,
            'layer.3.weight': w['head.weight'].T}
    return max(np.abs(own[k] - same[k]).max() for k in same)


def main(what, *rest):
    if what == 'make':
        make(*rest)
    elif what == 'step':
        print(f'{step(*rest)[0]:.5f}')
    elif what == 'after':
        print('near' if difference(*rest) < 2e-6 else difference(*rest))


if __name__ == '__main__':
    main(*sys.argv[1:])
