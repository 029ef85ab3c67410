"""Gathers the rules' input: the checked sources, and the words of everything else that may use their names."""
import os
import re
from collections import Counter, defaultdict

import c_source

CHECKED = ('compiler', 'runtime')
CODE = ('.c', '.h', '.cu', '.cuh')
USERS = '.cpp', '.py', '.sh', '.mk', '.js'
PASTED = re.compile(r'(\w+)[ \t]*(?=##)|##[ \t]*(\w+)')
COMMENT = re.compile(r'/\*.*?\*/', re.S)


def files(root, folders, endings):
    """Returns paths relative to root, sorted."""
    found = []
    for folder in folders:
        for place, _, names in os.walk(os.path.join(root, folder)):
            found += [os.path.relpath(os.path.join(place, n), root) for n in names if n.endswith(endings)]
    return sorted(found)


PROSE = ('compiler', 'runtime', 'schedules', 'tests', 'export'), ('.md', '.lua', '.sh', '.py', '.js') + CODE + ('.cpp',)
QUOTED = 'tests/house/tidy/', 'tests/house/fuzz/corpus/' # the rules themselves; copies of scripts
MARKS = {'.lua': r'[ \t]*--(?!\|)', '.sh': r'[ \t]*#', '.py': r'[ \t]*#', '.js': r'[ \t]*//'}
FENCED = re.compile(r'^```.*?^```|^    .*?$|`[^`\n]*`', re.S | re.M)
DOCSTRING = re.compile(r'\"\"\".*?\"\"\"', re.S)


def text_of(root, path):
    with open(os.path.join(root, path), encoding='utf-8', errors='replace') as f:
        return f.read()


def blank(m):
    """Returns as many line ends as a match has."""
    return '\n' * m.group().count('\n')


def prose(root):
    """Yields (path, text) of what people read beside compiled code: documents and comments, other lines being blank."""
    tops = [p for p in sorted(os.listdir(root)) if p.endswith('.md')]
    for p in tops + files(root, *PROSE):
        ending = os.path.splitext(p)[1]
        if p.startswith(QUOTED) or p.startswith(CHECKED) and ending in CODE:
            continue
        text = text_of(root, p)
        if ending == '.md':
            yield p, FENCED.sub(blank, text)
        elif ending in MARKS:
            spans = [m.span() for m in DOCSTRING.finditer(text)] if ending == '.py' else []
            spans += [m.span() for m in re.finditer('^' + MARKS[ending] + '.*$', text, re.M)]
            yield p, kept(text, spans)
        else:
            yield p, kept(text, [m.span() for m in re.finditer(r'/\*.*?\*/|//[^\n]*', text, re.S)])


def kept(text, spans):
    """Returns the text without anything outside the spans but line ends."""
    out, last = [], 0
    for a, b in sorted(spans):
        if a >= last:
            out += ['\n' * text.count('\n', last, a), text[a:b]]
            last = b
    return ''.join(out)


class Tree:
    """sources: the checked ones. words[path]: how often each word occurs there, including strings but not comments."""

    def __init__(self, root):
        self.root = root
        self.sources = [c_source.Source(p, text_of(root, p)) for p in files(root, CHECKED, CODE)]
        self.words = {s.path: s.words + s.quoted for s in self.sources}
        for p in files(root, ('tests', 'export'), CODE) + files(root, ('tests', 'export') + CHECKED, USERS):
            self.words[p] = Counter(c_source.WORD.findall(COMMENT.sub(' ', text_of(root, p))))
        self.total = Counter()
        self.homes = defaultdict(set) # word -> the files that have it
        for p, words in self.words.items():
            self.total.update(words)
            for w in words:
                self.homes[w].add(p)
        self.definitions = defaultdict(list) # function -> its definitions, one per file
        for s in self.sources:
            for name, f in {f.name: f for f in s.functions}.items():
                self.definitions[name].append((s, f))
        self.prototypes = defaultdict(list)
        for s in self.sources:
            for f in s.prototypes:
                self.prototypes[f.name].append((s, f))
        self.find_pasted()

    def find_pasted(self):
        """Finds the parts of names that macros put together with ##."""
        parts = [m.groups() for s in self.sources for m in PASTED.finditer(text_of(self.root, s.path))]
        self.heads = tuple({a for a, _ in parts if a and a.endswith('_')})
        self.tails = tuple({b for _, b in parts if b and b.startswith('_')})

    def is_used(self, name):
        """Returns whether a name occurs anywhere but in its declaration."""
        return self.total[name] > 1 or name.startswith(self.heads) or name.endswith(self.tails)
