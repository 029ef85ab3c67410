"""Reads C and CUDA without a compiler: a file's comments, functions, prototypes, structs, enum constants, macros and words.

Both sides of an #if are read if their braces balance; otherwise only the first side. Macros are not expanded, so what an
X-macro makes is seen as the words of its rows.
"""
import bisect
import re
from collections import Counter

TOKEN = re.compile(r'''
    (?P<comment>/\*.*?\*/|//[^\n]*)
  | (?P<string>(?:u8|[LuU])?"(?:\\.|[^"\\\n])*")
  | (?P<char>'(?:\\.|[^'\\\n])+')
  | (?P<directive>^[ \t]*\#(?:\\\n|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|(?!//)[^\n])*)
  | (?P<word>[A-Za-z_]\w*)
  | (?P<number>\.?\d(?:'?[\w.]|(?<=[eEpP])[+-])*)
  | (?P<sign>[^\s\w])
''', re.X | re.S | re.M)
WORD = re.compile(r'[A-Za-z_]\w*')
ATTRIBUTES = {'__attribute__', '__launch_bounds__', '_Alignas', 'alignas', '__align__', '__declspec', 'decltype', 'typeof'}


class Token:
    """A word, number, string, char or sign of the code outside directives."""
    __slots__ = 'kind', 'text', 'line'

    def __init__(self, kind, text, line):
        self.kind, self.text, self.line = kind, text, line


class Function:
    """A definition or a prototype; each parameter is the list of its tokens' texts."""

    def __init__(self, name, line, end, private, kernel, parameters):
        self.name, self.line, self.end = name, line, end
        self.private = private # static, or in an unnamed namespace
        self.kernel = kernel   # launched on a device
        self.parameters = parameters


class Struct:
    """A struct or union with a body; members lists (name, line), an unnamed inner struct's members among them."""

    def __init__(self, name, line, members):
        self.name, self.line, self.members = name, line, members


class Source:
    def __init__(self, path, text):
        self.path = path
        self.is_header = path.endswith(('.h', '.cuh'))
        self.lines = text.split('\n')
        if self.lines[-1] == '':
            self.lines.pop()
        self.starts = [0] + [m.end() for m in re.finditer('\n', text)]
        self.comments, self.macros, self.tokens = [], [], []
        self.words, self.quoted = Counter(), Counter()
        self.conditions = []
        self.scan(text)
        self.tokens = self.chosen()
        self.functions, self.prototypes, self.structs, self.enums = [], [], [], []
        self.read_top(0, len(self.tokens), False)
        self.read_structs()

    def openings(self):
        """Yields (line, text) for the beginning of each comment; consecutive // lines are one comment."""
        last = 0
        for line, text in self.comments:
            if not (text.startswith('//') and line == last + 1):
                yield line, text.lstrip('/*').lstrip()
            last = line if text.startswith('//') else 0

    def line_at(self, offset):
        return bisect.bisect_right(self.starts, offset)

    def scan(self, text):
        for m in TOKEN.finditer(text):
            kind, piece, line = m.lastgroup, m.group(), self.line_at(m.start())
            if kind == 'comment':
                self.comments.append((line, piece))
            elif kind == 'directive':
                self.scan_directive(piece, line)
            else:
                self.tokens.append(Token(kind, piece, line))
                if kind == 'word':
                    self.words[piece] += 1
                elif kind == 'string':
                    self.quoted.update(WORD.findall(piece))

    def scan_directive(self, piece, line):
        for c in re.finditer(r'/\*.*?\*/', piece, re.S):
            self.comments.append((line + piece.count('\n', 0, c.start()), c.group()))
        bare = re.sub(r'/\*.*?\*/', ' ', piece, flags=re.S)
        for s in re.findall(r'"(?:\\.|[^"\\\n])*"', bare):
            self.quoted.update(WORD.findall(s))
        bare = re.sub(r'"(?:\\.|[^"\\\n])*"', '""', bare).strip()
        name, _, rest = bare[1:].strip().partition(' ')
        if name in ('if', 'ifdef', 'ifndef'):
            self.conditions.append(('if', len(self.tokens)))
        elif name in ('else', 'elif', 'endif'):
            self.conditions.append((name, len(self.tokens)))
        elif name == 'define':
            macro = WORD.match(rest.strip())
            guard = not rest.strip()[macro.end():].strip() and self.is_header
            if not guard:
                self.macros.append((macro.group(), line))
        if name not in ('include', 'pragma', 'error'):
            self.words.update(WORD.findall(rest))

    def chosen(self):
        """Drops the later sides of an #if whose first side leaves a brace open."""
        dropped, stack = [], []
        for kind, at in self.conditions:
            if kind == 'if':
                stack.append([at, None])
            elif kind in ('else', 'elif'):
                if stack[-1][1] is None:
                    stack[-1][1] = at
            else:
                first, second = stack.pop()
                side = [t.text for t in self.tokens[first:second]] if second is not None else []
                if side.count('{') != side.count('}'):
                    dropped.append((second, at))
        return [t for i, t in enumerate(self.tokens) if not any(a <= i < b for a, b in dropped)]

    def closing(self, i):
        """Returns the index of the bracket that closes the one at i."""
        pair = {'(': ')', '{': '}', '[': ']'}
        opening, closer, depth = self.tokens[i].text, pair[self.tokens[i].text], 0
        for j in range(i, len(self.tokens)):
            text = self.tokens[j].text
            depth += (text == opening) - (text == closer)
            if depth == 0:
                return j
        raise SyntaxError(f'{self.path}:{self.tokens[i].line}: no {closer} closes this {opening}')

    def read_top(self, i, end, private):
        """Reads declarations between i and end; private: inside an unnamed namespace."""
        begin = i
        while i < end:
            text = self.tokens[i].text
            if text in '([':
                i = self.closing(i)
            elif text == ';':
                self.declare(begin, i, None, private)
                begin = i + 1
            elif text == '{':
                close, first = self.closing(i), self.tokens[begin].text
                if first in ('namespace', 'extern') and i - begin <= 2:
                    self.read_top(i + 1, close, private or first == 'namespace' and i - begin == 1)
                    begin = close + 1
                elif self.declare(begin, i, close, private):
                    begin = close + 1
                i = close
            i += 1

    def declare(self, begin, end, close, private):
        """Records the function whose head is tokens[begin:end], if it is one. close: where its body ends, or None for a
        prototype."""
        head = self.tokens[begin:end]
        i, name = 0, None
        if not head or head[0].text in ('typedef', 'using', '_Static_assert', 'static_assert'):
            return False
        if head[0].text == 'template':
            i = self.after_angles(head, 1)
        while len(head) > i + 1 and head[i].kind == 'word' and head[i + 1].text == '(' and head[i].text not in ATTRIBUTES:
            i = self.closing(begin + i + 1) - begin + 1 # a macro that needs no semicolon
        if i >= len(head):
            return False
        first = head[i] if head[0].text != 'template' else head[0]
        while i < len(head):
            text = head[i].text
            if text == '=':
                return False
            if text in '[{':
                i = self.closing(begin + i) - begin
            elif text == '(':
                before = head[self.before_angles(head, i)]
                if before.text in ATTRIBUTES:
                    i = self.closing(begin + i) - begin
                elif head[i + 1].text == '*' and head[i + 2].kind == 'word' and head[i + 3].text == '(':
                    name, i = head[i + 2], i + 3
                    break
                elif i < 1 or before.kind != 'word' or before is first or head[i + 1].text == '*':
                    return False
                else:
                    name = before
                    break
            i += 1
        if name is None or close is None and any(t.text == '=' for t in head):
            return False
        last = self.closing(begin + i) - begin
        words = {t.text for t in head[:i]}
        found = Function(name.text, first.line, self.tokens[close].line if close else head[-1].line,
                         private or 'static' in words, '__global__' in words, split(head[i + 1:last]))
        (self.prototypes if close is None else self.functions).append(found)
        return True

    @staticmethod
    def before_angles(head, i):
        """Returns the index of the name before the bracket at i: of f in f(, and in f<int>(."""
        depth = 0
        for k in range(i - 1, -1, -1):
            depth += (head[k].text == '>') - (head[k].text == '<')
            if depth == 0:
                return k - (head[k].text == '<' and k > 0)
        return i - 1

    @staticmethod
    def after_angles(head, i):
        depth = 0
        while i < len(head):
            depth += (head[i].text == '<') - (head[i].text == '>')
            i += 1
            if depth == 0:
                break
        return i

    def read_structs(self):
        tokens = self.tokens
        for i, t in enumerate(tokens[:-2]):
            if t.kind != 'word' or t.text not in ('struct', 'union', 'enum'):
                continue
            named = tokens[i + 1].kind == 'word'
            at = i + 1 + named
            if tokens[at].text != '{':
                continue
            name = tokens[i + 1].text if named else ''
            if t.text == 'enum':
                self.enums.append(self.enumerated(at))
            else:
                self.structs.append(Struct(name, t.line, self.members(at)))

    def enumerated(self, at):
        found = []
        for part in split(self.tokens[at + 1:self.closing(at)], whole=True):
            if part and part[0].kind == 'word' and (len(part) == 1 or part[1].text == '='):
                found.append((part[0].text, part[0].line))
        return found

    def members(self, at):
        found, i, end = [], at + 1, self.closing(at)
        begin, inner = i, []
        while i < end:
            text = self.tokens[i].text
            if text == '{':
                close = self.closing(i)
                if self.tokens[begin].text in ('struct', 'union'):
                    if self.tokens[close + 1].text == ';':
                        inner = self.members(i)
                    begin = close + 1
                elif self.tokens[begin].text == 'enum':
                    begin = close + 1
                elif self.declare(begin, i, close, True): # a method
                    begin = close + 1
                i = close
            elif text in '([':
                i = self.closing(i)
            elif text == ';':
                found += inner or self.declarators(self.tokens[begin:i])
                begin, inner = i + 1, []
            i += 1
        return found

    @staticmethod
    def declarators(tokens):
        found = []
        for part in split(tokens, whole=True):
            pointer = [part[k + 2] for k in range(len(part) - 2) if part[k].text == '(' and part[k + 1].text == '*']
            plain = []
            for t in part:
                if t.text in ('[', ':', '=', '('):
                    break
                plain.append(t)
            name = next((t for t in pointer + plain[::-1] if t.kind == 'word'), None)
            if name:
                found.append((name.text, name.line))
        return found


def split(tokens, whole=False):
    """Returns the parts between commas outside brackets: as tokens if whole, else as texts, without a lone void."""
    parts, depth, angles = [[]], 0, 0
    for k, t in enumerate(tokens):
        depth += (t.text in '([{') - (t.text in ')]}') if len(t.text) == 1 else 0
        angles += (t.text == '<') - (t.text == '>')
        if t.text == ',' and depth == 0 and angles <= 0:
            parts.append([])
        else:
            parts[-1].append(t)
    parts = [p for p in parts if p]
    if whole:
        return parts
    texts = [[t.text for t in p] for p in parts]
    return [] if texts == [['void']] else texts


