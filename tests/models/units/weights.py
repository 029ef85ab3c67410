#!/usr/bin/env python3
"""Writes weights of gated_mlp.lua into DIR: units.safetensors, and layers.safetensors with the same values under the names
of a model of layers. With `own`, files for the unit of small.lua instead; with `named`, files for named.lua. `weights.py A B` compares the
tensors of two files. Usage: weights.py DIR [own|named]"""
import json
import random
import struct
import sys


def load(path):
    with open(path, 'rb') as f:
        header = json.loads(f.read(struct.unpack('<Q', f.read(8))[0]))
        data = f.read()
    header.pop('__metadata__', None)
    return {k: (v['dtype'], v['shape'], data[slice(*v['data_offsets'])]) for k, v in header.items()}


def save(path, tensors, dtype='f'):
    header, data = {}, b''
    for name, (shape, values) in tensors.items():
        raw = struct.pack(f'<{len(values)}{dtype}', *values)
        header[name] = {'dtype': {'f': 'F32', 'd': 'F64'}[dtype], 'shape': shape, 'data_offsets': [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b' ' * (-len(text) % 8)
    with open(path, 'wb') as f:
        f.write(struct.pack('<Q', len(text)) + text + data)


def drawn(shape, deviation):
    n = 1
    for size in shape:
        n *= size
    return shape, [random.gauss(0, deviation) for _ in range(n)]


def models(folder):
    random.seed(7)
    width, inner = 64, 128
    common = {'tokens.weight': drawn([256, width], 0.1), 'positions.weight': drawn([32, width], 0.1),
              'head.weight': drawn([width, 256], 0.125)}
    units, layers = dict(common), dict(common)
    for i in range(4):
        norm, gate_up, down = ([width], [1.0] * width), drawn([width, 2 * inner], 0.125), drawn([inner, width], 0.09)
        units |= {f'block.{i}.norm.weight': norm, f'block.{i}.gate_up': gate_up, f'block.{i}.down': down}
        layers |= {f'block.{i}.norm.weight': norm, f'block.{i}.gate_up.weight': gate_up, f'block.{i}.down.weight': down}
    save(f'{folder}/units.safetensors', units)
    save(f'{folder}/layers.safetensors', layers)


def own_files(folder):
    ones, zeros = ([8], [1.0] * 8), ([8], [0.0] * 8)
    save(f'{folder}/own.safetensors', {'scale': ([8], [0.5] * 8), 'shift': ones})
    save(f'{folder}/same.safetensors', {'scale': ones, 'shift': zeros})
    save(f'{folder}/lacks.safetensors', {'scale': ones})
    save(f'{folder}/shape.safetensors', {'scale': ones, 'shift': ([9], [0.0] * 9)})


def named_files(folder):
    random.seed(8)
    all = {'model.embed.weight': drawn([16, 8], 0.1), 'model.position.weight': drawn([4, 8], 0.1),
           'proj.weight': drawn([8, 8], 0.3), 'proj.bias': drawn([8], 0.1),
           'scale': drawn([8], 1), 'shift': drawn([8], 1)}
    for i in range(2):
        all |= {f'model.layers.{i}.norm.{name}': drawn([8], 1) for name in ('scale', 'shift')}
    scale = 'model.layers.1.norm.scale'
    save(f'{folder}/named.safetensors', all)
    save(f'{folder}/tied.safetensors', all | {'lm_head.weight': all['model.embed.weight']})
    save(f'{folder}/untied.safetensors', all | {'lm_head.weight': drawn([16, 8], 0.1)})
    save(f'{folder}/missing.safetensors', {k: v for k, v in all.items() if k != 'model.layers.0.norm.shift'})
    save(f'{folder}/short.safetensors', all | {'model.layers.0.norm.shift': drawn([7], 1)})
    save(f'{folder}/double.safetensors', all, 'd')
    save(f'{folder}/other.safetensors', all | {'model.layers.2.norm.scale': drawn([8], 1)})
    save(f'{folder}/thawed.safetensors', all | {scale: drawn([8], 1)})
    save(f'{folder}/trained.safetensors', {k: v for k, v in all.items() if not k.startswith('model.layers') or 'scale' not in k})


if sys.argv[2:] and sys.argv[2].endswith('.safetensors'):
    a, b = map(load, sys.argv[1:])
    print(*sorted(k for k in a.keys() | b.keys() if a.get(k) != b.get(k)) or ['same'])
else:
    {'own': own_files, 'named': named_files}.get(sys.argv[2] if sys.argv[2:] else '', models)(sys.argv[1])
