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


# A unit is a layer whose code a model brings. Its row tells the others what it keeps and costs, as every layer's does,
# so only these may ask which layers are units: the row and its calls; what reads, prints, loads and checks units.
KNOW_UNITS = ('runtime/layers/kinds.c', 'runtime/layers/unit', 'runtime/units/', 'compiler/passes/layer_unit.c',
              'compiler/script/script_unit.c', 'compiler/script/script_model.c', 'compiler/formats/emit_cuda_units.c',
              'compiler/cli/unit_library.c', 'compiler/cli/cmd_check_unit.c')
TIMED = {'report', 'rep'} # their `unit` is one of time, as it is of everything in these folders
OF_TIME = tuple(f'compiler/{room}/' for room in ('cli', 'diff', 'draw', 'formats', 'search', 'traces'))


def owner_of(texts, i):
    """Returns where the struct, or the array of structs, is named whose member is word i; -1: it is no member."""
    at = i - 2 if texts[i - 1] == '.' else i - 3 if texts[i - 2:i] == ['-', '>'] else -1
    depth = 0
    while at >= 0 and (depth > 0 or texts[at] == ']'):
        depth += (texts[at] == ']') - (texts[at] == '[')
        at -= 1
    return at


def is_copied(texts, i):
    """Returns whether member i is assigned to, or is all that is assigned."""
    after = texts[i + 1:i + 3]
    while owner_of(texts, i) >= 0:
        i = owner_of(texts, i)
    return after[0] == '=' and after[1] != '=' or after[0] in ',;}' and texts[i - 1] == '='


def units(tree):
    """Nobody else names LAYER_unit, but in its row of a table, or does more with a layer's unit than copy it."""
    for s in tree.sources:
        if s.path.startswith(KNOW_UNITS):
            continue
        texts = [t.text for t in s.tokens] + ['', '']
        for i, t in enumerate(s.tokens):
            if t.text not in ('unit', 'LAYER_unit'):
                continue
            owner = texts[owner_of(texts, i)] if owner_of(texts, i) >= 0 else ''
            layers = owner in ('l', 'layer') if s.path.startswith(OF_TIME) else owner not in TIMED
            asks = t.text == 'LAYER_unit' and not (texts[i - 1] == '[' and texts[i + 1:i + 3] == [']', '='])
            if asks or t.text == 'unit' and owner and layers and not is_copied(texts, i):
                yield s.path, t.line, f'questions in {s.path} that only a unit\'s row answers', 1, 0


RULES = functions, structs, sizes, file_names, external_names, static_names, dead_functions, dead_names, phrases, units
