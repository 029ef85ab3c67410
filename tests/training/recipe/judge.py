"""Checks the output of `--metrics` by independent formulas. Usage: judge.py rates FILE schedule lr warmup steps final
cooldown | same FILE FILE | mean TRAINING VALIDATION | steps FILE | picture FILE N | board FOLDER FILE"""
import json
import math
import pathlib
import struct
import sys
import time
import xml.etree.ElementTree as xml


def lines(path):
    return [json.loads(line) for line in open(path)]


def rates(path, schedule, lr, warmup, steps, final, cooldown):
    """Checks rates. t counts the optimizer steps made so far, as PyTorch's schedulers do."""
    lr, warmup, steps, final, cooldown = float(lr), int(warmup), int(steps), float(final), float(cooldown)
    for line in lines(path):
        if 'rate' not in line:
            continue
        t = line['step'] - 1
        if t < warmup:
            want = lr * (t + 1) / warmup
        elif schedule == 'constant':
            want = lr
        elif schedule == 'wsd':
            down = round(cooldown * steps)
            left = steps - t
            want = lr if left >= down else lr * (1 - (1 - final) * math.sqrt(min(1, 1 - max(left, 0) / down)))
        else:
            x = min(1, (t - warmup) / (steps - warmup))
            part = math.cos(math.pi * x) / 2 + 0.5 if schedule == 'cosine' else 1 - x
            want = lr * final + lr * (1 - final) * part
        assert abs(line['rate'] - want) <= 2e-7 * lr, (line, want)


def same(one, other):
    """Checks that two runs have the same losses and rates, up to 1e-6. Times may differ."""
    a, b = lines(one), lines(other)
    assert [x['step'] for x in a] == [x['step'] for x in b], 'other steps'
    for x, y in zip(a, b):
        for key in ('loss', 'rate', 'validation_loss'):
            assert (key in x) == (key in y)
            assert key not in x or abs(x[key] - y[key]) <= 1e-6 * abs(x[key]), (x, y)


def mean(training, validation):
    """Checks that an epoch whose updates change nothing has the mean loss of a validation on the same text."""
    epoch = [x['loss'] for x in lines(training)]
    got = [x['validation_loss'] for x in lines(validation) if 'validation_loss' in x]
    assert got and all(abs(x - sum(epoch) / len(epoch)) < 1e-6 for x in got), (got, sum(epoch) / len(epoch))


def steps(path):
    print(*[x['step'] for x in lines(path) if 'loss' in x])
    for x in lines(path):
        if 'loss' in x:
            assert x['tokens_per_second'] > 0 and x['seconds'] > 0 and x['memory_bytes'] > 0 and x['waited_seconds'] >= 0, x


def picture(path, n):
    svg = '{http://www.w3.org/2000/svg}'
    drawn = [p for p in xml.parse(path).iter(svg + 'path') if p.get('class') == 'z']
    assert len(drawn) == 2 * int(n), len(drawn)  # two panels
    assert all(len(p.get('d').split('L')) > 1 for p in drawn)


def crc(data):
    """Returns the CRC-32C of data, masked as in TensorBoard's records."""
    c = 0xffffffff
    for byte in data:
        c ^= byte
        for _ in range(8):
            c = c >> 1 ^ (0x82f63b78 if c & 1 else 0)
    c ^= 0xffffffff
    return ((c >> 15 | c << 17) + 0xa282ead8) & 0xffffffff


def fields(data):
    """Yields a protocol buffer's fields in order: the number, and the value as bytes or an integer."""
    at = 0

    def varint():
        nonlocal at
        x = shift = 0
        while True:
            byte = data[at]
            at += 1
            x |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return x
    while at < len(data):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
            continue
        n = {1: 8, 2: None, 5: 4}[key & 7]
        n = varint() if n is None else n
        yield key >> 3, data[at:at + n]
        at += n


def board(folder, path):
    """Checks a folder's event files against the metrics. Later files replace steps of earlier ones, as in TensorBoard."""
    assert crc(b'123456789') == (lambda c: ((c >> 15 | c << 17) + 0xa282ead8) & 0xffffffff)(0xe3069283)
    said = {}
    files = sorted(pathlib.Path(folder).glob('events.out.tfevents.*'), key=lambda p: p.stat().st_mtime_ns)
    assert files
    for file in files:
        data, at, first = file.read_bytes(), 0, True
        while at < len(data):
            length, = struct.unpack_from('<Q', data, at)
            assert struct.unpack_from('<I', data, at + 8)[0] == crc(data[at:at + 8])
            body = data[at + 12:at + 12 + length]
            assert struct.unpack_from('<I', data, at + 12 + length)[0] == crc(body)
            at += 16 + length
            event = dict(fields(body))
            assert abs(struct.unpack('<d', event[1])[0] - time.time()) < 3600
            assert (event.get(3) == b'brain.Event:2') == first, event
            first = False
            if 7 in event:
                assert event[7] == b'\x08\x01'
                said = {k: v for k, v in said.items() if k[0] < event[2]}
            for _, value in fields(event.get(5, b'')):
                value = dict(fields(value))
                assert (event[2], value[1].decode()) not in said
                said[event[2], value[1].decode()] = struct.unpack('<f', value[2])[0]
    names = {'loss': 'train/loss', 'rate': 'train/learning_rate', 'gradient_norm': 'train/gradient_norm',
             'seconds': 'train/seconds_per_step', 'tokens_per_second': 'train/tokens_per_second',
             'waited_seconds': 'train/waited_seconds', 'validation_loss': 'validation/loss'}
    want = {(x['step'], names[k]): v for x in lines(path) for k, v in x.items() if k in names and v is not None}
    assert said.keys() == want.keys(), said.keys() ^ want.keys()
    for key, x in want.items():
        assert abs(said[key] - x) <= 1e-5 * abs(x), (key, said[key], x)


globals()[sys.argv[1]](*sys.argv[2:])
