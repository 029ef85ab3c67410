"""What `--metrics` says, judged by formulas of its own. Usage: judge.py rates FILE schedule lr warmup steps final cooldown
| same FILE FILE | mean TRAINING VALIDATION | steps FILE | picture FILE N"""
import json
import math
import sys
import xml.etree.ElementTree as xml


def lines(path):
    return [json.loads(line) for line in open(path)]


def rates(path, schedule, lr, warmup, steps, final, cooldown):
    """As PyTorch's schedulers count: t optimizer steps have been made."""
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
    """The losses and rates of two runs, to 1e-6; times differ."""
    a, b = lines(one), lines(other)
    assert [x['step'] for x in a] == [x['step'] for x in b], 'other steps'
    for x, y in zip(a, b):
        for key in ('loss', 'rate', 'validation_loss'):
            assert (key in x) == (key in y)
            assert key not in x or abs(x[key] - y[key]) <= 1e-6 * abs(x[key]), (x, y)


def mean(training, validation):
    """Losses of an epoch whose updates change nothing are those of a validation on the same text."""
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


globals()[sys.argv[1]](*sys.argv[2:])
