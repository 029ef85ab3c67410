#!/usr/bin/env python3
"""Writes weights of gated_mlp.lua into DIR: units.safetensors, and layers.safetensors with the same values under the names
of a model of layers. With `own`, files for the unit of small.lua instead. Usage: weights.py DIR [own]"""
import json
import random
import struct
import sys


def save(path, tensors):
    header, data = {}, b''
    for name, (shape, values) in tensors.items():
        raw = struct.pack(f'<{len(values)}f', *values)
        header[name] = {'dtype': 'F32', 'shape': shape, 'data_offsets': [len(data), len(data) + len(raw)]}
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


(own_files if 'own' in sys.argv[2:] else models)(sys.argv[1])
