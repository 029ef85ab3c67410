#!/usr/bin/env python3
"""Checks compiler/ and runtime/ against the house's rules: rules.py. Usage: tidy.py [--measures] [ROOT]

Prints each breach as `file:line: what: value, limit N`, and exits 1 if there are any. ROOT/tests/house/tidy/limits.txt raises
the limits of named cases. With --measures, prints the figures of measures.py instead.
"""
import os
import re
import sys

import measures
import rules
from tree import Tree

HERE = os.path.dirname(os.path.abspath(__file__))
LIMITS = 'tests/house/tidy/limits.txt'


def read_limits(root):
    """Returns limits.txt, whose rows are `LIMIT WHAT: REASON`, as what -> (limit, line)."""
    found, path = {}, os.path.join(root, LIMITS)
    if not os.path.exists(path):
        return found
    with open(path, encoding='utf-8') as f:
        for number, row in enumerate(f, 1):
            if row.strip() and not row.startswith('#'):
                m = re.fullmatch(r'(\d+) (.+?): *(\S.*)\n', row)
                if not m:
                    sys.exit(f'{LIMITS}:{number}: expected LIMIT WHAT: REASON, got: {row.strip()}')
                found[m[2]] = int(m[1]), number
    return found


def check(tree, limits):
    """Prints breaches, and limits that no case needs any more; returns their number."""
    broken, worst = 0, {}
    for rule in rules.RULES:
        for path, line, what, value, limit in rule(tree):
            if what in limits and value > limit:
                worst[what] = max(value, worst.get(what, 0))
                limit = limits[what][0]
            if value > limit:
                print(f'{path}:{line}: {what}: {value}, limit {limit}')
                broken += 1
    for what, (limit, number) in limits.items():
        if what not in worst:
            print(f'{LIMITS}:{number}: {what}: remove this row, no case needs it')
            broken += 1
        elif worst[what] < limit:
            print(f'{LIMITS}:{number}: {what}: could be {worst[what]} instead of {limit}')
    return broken


def main(arguments):
    measure = arguments[:1] == ['--measures']
    places = arguments[measure:]
    root = places[0] if places else os.path.join(HERE, '..', '..', '..')
    tree = Tree(root)
    if measure:
        measures.show(tree)
        return 0
    return check(tree, read_limits(root)) > 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
