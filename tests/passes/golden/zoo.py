"""Prints schedules/zoo.md with the figures of its table from `pianola compare`, on 4 ranks with 8 microbatches. A
schedule without such an instance has its own numbers. Usage: zoo.py PIANOLA SCHEDULE.lua..."""
import json
import os
import re
import subprocess
import sys

MODEL = '--model schedules/models/gpt2.lua -D size=774M -D tied=false'.split()
SIZE = '-D workers=4 -D batches=8'.split()


def compare(schedules, *arguments):
    """Returns name -> figures of the schedules that can be compared."""
    got = subprocess.run([sys.argv[1], 'compare', *schedules, *arguments, '--json'], capture_output=True, text=True)
    return {row['schedule']: row for row in json.loads(got.stdout or '{"schedules": []}')['schedules']}


scripts = {os.path.basename(path)[:-len('.lua')]: path for path in sys.argv[2:]}
unit, model = compare(scripts.values(), *SIZE), compare(scripts.values(), *SIZE, *MODEL)
for name in scripts.keys() - unit.keys():
    unit |= compare([scripts[name]])
    model |= compare([scripts[name]], *MODEL)

rows = []
with open('schedules/zoo.md', encoding='utf-8') as page:
    for line in page:
        if m := re.match(r'\| \[[^]]*\]\(([a-z0-9_]+)\.lua\) \|', line):
            rows.append(m[1])
            cells = line.split(' | ')
            if m[1] in unit.keys() & model.keys():
                cells[3:6] = (f'{100 * unit[m[1]]["bubble"]:.1f} %', f'{unit[m[1]]["peak_activations"]:.3g}',
                              f'{model[m[1]]["peak_bytes"] / 2 ** 30:.1f}')
            line = ' | '.join(cells)
        print(line, end='')
if sorted(rows) != sorted(scripts):
    print('rows that are missing, or too many:', *sorted(scripts.keys() ^ set(rows)))
