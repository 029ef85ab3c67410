"""The rules: each yields (path, line, what, value, limit) for every breach. RULES lists them.

limits.txt raises the limit of a `what` by name, so each `what` must distinguish its case from all others.
"""
import os
import re
from collections import Counter

from tree import files, prose, text_of

LINES_OF_FUNCTION = 60
PARAMETERS = 7
PARAMETERS_OF_KERNEL = 10 # a launch names its tensors and their extents one by one
MEMBERS = 25
LINES_OF_HEADER = 300
LINES_OF_FILE = 500
LINES_OF_TEST = 600
COLUMNS = 120

# Phrases that make a reader stop: in comments and documents, or where a comment opens with them.
WORN = ('so many', 'that of', 'those of', 'those which', 'is said', 'is asked', 'the same of')
WORN_OPENINGS = ('As', 'By', 'In', 'Of', 'That', 'What', 'Which', 'Whose')


def functions(tree):
    for s in tree.sources:
        for f in s.functions:
            yield s.path, f.line, f'lines of function {f.name}', f.end - f.line + 1, LINES_OF_FUNCTION
        for f in s.functions + s.prototypes:
            limit = PARAMETERS_OF_KERNEL if f.kernel else PARAMETERS
            yield s.path, f.line, f'parameters of function {f.name}', len(f.parameters), limit


def structs(tree):
    for s in tree.sources:
        for x in s.structs:
            yield s.path, x.line, f'members of struct {x.name or "without a name"}', len(x.members), MEMBERS


def sizes(tree):
    for s in tree.sources:
        if s.is_header:
            yield s.path, len(s.lines), f'lines of header {s.path}', len(s.lines), LINES_OF_HEADER
        else:
            yield s.path, len(s.lines), f'lines of file {s.path}', len(s.lines), LINES_OF_FILE
        for i, line in enumerate(s.lines):
            yield s.path, i + 1, f'columns of a line in {s.path}', len(line), COLUMNS
    for p in files(tree.root, ('schedules', 'tests'), ('.c', '.h', '.lua', '.sh')):
        lines = text_of(tree.root, p).count('\n')
        yield p, lines, f'lines of file {p}', lines, LINES_OF_TEST


def file_names(tree):
    """Members of an archive are identified by file name alone, and people do the same."""
    seen = {}
    for s in tree.sources:
        name = os.path.basename(s.path)
        if name in seen:
            yield s.path, 1, f'files named {name}, first {seen[name]}', 2, 1
        seen.setdefault(name, s.path)


def programs(path):
    """Returns the programs and libraries of the Makefile that link a file."""
    room, name = path.split('/')[1], os.path.basename(path)
    if path.startswith('compiler/'):
        return {'page'} if room == 'page' else {'pianola'}
    if path.endswith('.cu'):
        return {'cuda.so'} if room == 'process' else {'cuda.a'} if room in ('comm', 'rank') else {'cuda.so', 'cuda.a'}
    of_host = {'host'} if room == 'rank' or name == 'comm_mpi.c' else {'host', 'pianola'}
    return of_host if name.endswith('_host.c') or name == 'comm_local.c' else of_host | {'cuda.so', 'cuda.a'}


def external_names(tree):
    """An interface may have one definition for the host and one for CUDA, in files that are never linked together. No
    static function repeats the name of an external one, or of one in a header."""
    for name, homes in tree.definitions.items():
        external = [(s, f) for s, f in homes if s.is_header or not f.private]
        for i, (s, f) in enumerate(external):
            first = next((q for q, _ in external[:i] if programs(q.path) & programs(s.path)), None)
            if first:
                yield s.path, f.line, f'definitions of external {name}, first in {first.path}', 2, 1
        for s, f in homes if external else ():
            if f.private and not s.is_header:
                yield s.path, f.line, f'definitions of {name}, external in {external[0][0].path}', 2, 1


def static_names(tree):
    shared = [n for n, homes in tree.definitions.items()
              if len(homes) > 1 and all(f.private and not s.is_header for s, f in homes)]
    yield 'compiler', 1, 'static function names defined in several files', len(shared), 0


def dead_functions(tree):
    """A prototype in a header needs a definition, and a function that is not static needs a user in another file."""
    for name, places in tree.prototypes.items():
        for s, f in places:
            if s.is_header:
                yield s.path, f.line, f'undefined prototype of {name}', int(name not in tree.definitions), 0
    for name, homes in tree.definitions.items():
        own = {s.path for s, _ in homes} | {s.path for s, _ in tree.prototypes[name]
                                            if s.words[name] == sum(q is s for q, _ in tree.prototypes[name])}
        for s, f in homes:
            if not (f.private or s.is_header or name == 'main' or name.endswith(tree.tails)):
                yield s.path, f.line, f'unused external function {name}', int(tree.homes[name] <= own), 0


def dead_names(tree):
    for s in tree.sources:
        names = [(f'macro {name}', line, [name]) for name, line in s.macros]
        for x in s.structs:
            names += [(f'struct {x.name}', x.line, [x.name])] if x.name else []
            names += [(f'member {name} of struct {x.name or "without a name"}', line, [name]) for name, line in x.members]
        names += [(f'enum of {c[0][0]}', c[0][1], [name for name, _ in c]) for c in s.enums if c]
        for what, line, used in names:
            yield s.path, line, f'unused {what}', int(not any(map(tree.is_used, used))), 0


def phrases(tree):
    counts, places = Counter(), {}
    for s in tree.sources:
        for line, text in s.openings():
            for word in WORN_OPENINGS:
                if text.startswith(word + ' '):
                    note(counts, places, f'comments that open with "{word}"', s.path, line)
        for line, text in s.comments:
            for phrase, at in worn(text):
                note(counts, places, f'comments that say "{phrase}"', s.path, line + at)
    for path, text in prose(tree.root):
        for phrase, at in worn(text):
            note(counts, places, f'comments that say "{phrase}"', path, 1 + at)
    for what, count in counts.items():
        yield *places[what], what, count, 0


def worn(text):
    """Yields each worn phrase in a text, also across lines of a comment, and its line from 0."""
    for phrase in WORN:
        for m in re.finditer(r'\b' + phrase.replace(' ', r'(?:\s|\*|#|--|//)+') + r'\b', text):
            yield phrase, text.count('\n', 0, m.start())


def note(counts, places, what, path, line):
    counts[what] += 1
    places[what] = path, line


RULES = functions, structs, sizes, file_names, external_names, static_names, dead_functions, dead_names, phrases
