"""Prints figures that show whether the code gets simpler. They have no limits."""
import os
from collections import Counter
from statistics import median

from rules import MEMBERS

# The parts of a compile. A function with three or more of them as parameters could take the whole.
PARTS = ({'spec'}, {'stage', 'costs'}, {'graph'}, {'sched'}, {'program'}, {'timeline'}, {'report'})
MANY_PARTS = 3
ASSERTIONS = 'assert', '_Static_assert', 'static_assert'


def parts_of(function):
    """Returns how many parts of a compile a function's parameters name."""
    tags = {b for p in function.parameters for a, b in zip(p, p[1:]) if a == 'struct'}
    return sum(bool(tags & part) for part in PARTS)


def calls(source, names):
    tokens = source.tokens
    return sum(a.text in names and b.text == '(' for a, b in zip(tokens, tokens[1:]))


def show(tree):
    folders, functions = Counter(), [f for s in tree.sources for f in s.functions]
    for s in tree.sources:
        folders[os.path.dirname(s.path)] += len(s.lines)
    for folder in sorted(folders):
        print(f'{folders[folder]:6} lines in {folder}/')
    shared = {name: homes for name, homes in tree.definitions.items() if len(homes) > 1}
    external = [n for n, homes in shared.items() if any(s.is_header or not f.private for s, f in homes)]
    most = max(shared, key=lambda n: len(shared[n]), default=None)
    structs = sorted(((len(x.members), x.name) for s in tree.sources for x in s.structs), reverse=True)
    wide = [(n, name) for n, name in structs if n > MEMBERS]
    for value, what in (
            (sum(folders.values()), 'lines'),
            (len(tree.sources), 'files'),
            (len(functions), 'functions'),
            (len(tree.definitions), 'function names'),
            (f'{median(f.end - f.line + 1 for f in functions):g}' if functions else 0, "lines in a function's median"),
            (len(shared), 'function names defined in several files' +
             (f', {most} in {len(shared[most])}' if most else '')),
            (len(external), 'of those external in one of them'),
            (len(wide), f'structs over {MEMBERS} members: ' + ', '.join(f'{name} {n}' for n, name in wide)),
            (sum(parts_of(f) >= MANY_PARTS for f in functions), f"functions with {MANY_PARTS} or more of a compile's parts"),
            (sum(calls(s, ('setjmp',)) for s in tree.sources), 'calls of setjmp'),
            (sum(calls(s, ASSERTIONS) for s in tree.sources), 'assertions')):
        print(f'{value:>6} {what}')
