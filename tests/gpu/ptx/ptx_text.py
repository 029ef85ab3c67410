"""Reads the PTX that nvcc and Triton write: kernels, their parameters, shared variables, registers and instructions.

Sections refer to NVIDIA's "Parallel Thread Execution ISA", 8.x and 9.0. Unknown text ends the run with its line.
"""
import math
import re

BYTES = {'pred': 1, 'u8': 1, 's8': 1, 'b8': 1, 'u16': 2, 's16': 2, 'b16': 2, 'bf16': 2, 'u32': 4, 's32': 4, 'b32': 4,
         'f32': 4, 'u64': 8, 's64': 8, 'b64': 8, 'f64': 8}


class Unknown(Exception):
    """PTX that this executor does not know."""


class Instruction:
    """line: in the file. guard: None, or a predicate register and whether it is negated. op: the words of the opcode.
    operands: ('reg', name), ('number', text), ('symbol', name), ('vector', operands), ('address', operand, offset)
    or ('pair', register, predicate)."""

    def __init__(self, line, text, guard, op, operands):
        self.line, self.text, self.guard, self.op, self.operands = line, text, guard, op, operands


class Kernel:
    """params: name to (offset, bytes); params_bytes: their total; pointers: names of those that are declared as
    pointers; threads: of a block, or None. statements: the lines of its body, with their
    numbers. Set by parse(): registers: name to type. shared: the static variables that it names, (name, alignment,
    bytes). dynamic: the name of the array after them, or None. labels: name to index in code."""

    def __init__(self, name, path, variables):
        self.name, self.path, self.variables, self.params, self.params_bytes = name, path, variables, {}, 0
        self.statements, self.registers, self.pointers, self.threads = [], {}, set(), None
        self.shared, self.dynamic, self.code, self.labels = [], None, [], {}

    def parse(self):
        if self.code:
            return
        for line, text in self.statements:
            _statement(self, self.variables, self.path, line, text)
        used = {o for i in self.code for o in _symbols(i.operands)}
        for name, (align, size) in self.variables.items():
            if name in used and size is None:
                self.dynamic = name
            elif name in used:
                self.shared.append((name, align, size))


def aligned(n, to):
    return (n + to - 1) // to * to


def _operand(text):
    text = text.strip()
    if text.startswith('{'):
        return ('vector', [_operand(t) for t in text[1:-1].split(',')])
    if text.startswith('['):
        m = re.fullmatch(r'\[\s*([%\w$.]+)\s*(?:\+\s*(-?\d+))?\s*\]', text)
        return ('address', _operand(m.group(1)), int(m.group(2) or 0))
    if '|' in text:
        return ('pair', *(_operand(t) for t in text.split('|')))
    if text.startswith('%'):
        return ('reg', text)
    if re.match(r'-?\d', text):
        return ('number', text)
    return ('symbol', text)


def _instruction(line, text):
    m = re.fullmatch(r'(?:@(!?)(%\w+)\s+)?([a-z][\w.:]*)\s*(.*)', text, re.S)
    if not m:
        raise Unknown(f'line {line}: {text}')
    negated, predicate, op, rest = m.groups()
    operands = [_operand(t) for t in re.findall(r'\{[^}]*\}|\[[^\]]*\]|[^,\s][^,]*', rest)]
    return Instruction(line, text, predicate and (predicate, bool(negated)), op.split('.'), operands)


def _shared(text):
    """Parses a declaration of a shared variable. Returns its name, alignment and bytes, or None for bytes if it is
    dynamic."""
    m = re.fullmatch(r'(\.extern\s+)?\.shared\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+([\w$]+)(?:\[(\d*)\])?', text)
    if not m:
        raise Unknown(text)
    extern, align, kind, name, count = m.groups()
    size = None if extern else BYTES[kind] * int(count or 1)
    return name, int(align or BYTES[kind]), size


def _parameters(kernel, text):
    for part in filter(None, (p.strip() for p in text.split(','))):
        m = re.fullmatch(r'\.param\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+(?:\.ptr\s+(?:\.\w+\s+)?(?:\.align\s+\d+\s+)?)?'
                         r'([\w$]+)(?:\[(\d+)\])?', part)
        if not m:
            raise Unknown(part)
        align, kind, name, count = m.groups()
        size = BYTES[kind] * int(count or 1)
        offset = aligned(kernel.params_bytes, int(align or BYTES[kind]))
        kernel.params[name] = (offset, size)
        kernel.params_bytes = offset + size
        if '.ptr' in part:
            kernel.pointers.add(name)


def read(path):
    """Returns the kernels of a file, by mangled name. Their bodies are parsed when needed."""
    kernels, variables, kernel, header, body = {}, {}, None, None, False
    section = False  # of debugging information, which has braces of its own
    for line, text in enumerate(open(path), 1):
        text = text.split('//', 1)[0].strip()
        if section or text.startswith('.section'):
            section = '}' not in text
            continue
        if kernel is None:
            if text.startswith(('.shared', '.extern .shared')):
                name, *rest = _shared(text.rstrip(';'))
                variables[name] = rest
            elif re.match(r'(\.visible\s+|\.weak\s+)?\.entry', text):
                kernel, body = Kernel(re.search(r'\.entry\s+([\w$]+)', text).group(1), path, variables), False
                header = text.split('(', 1)[1] if '(' in text else ''
            # libdevice leaves a string that no instruction names
            elif text and not text.startswith(('.version', '.target', '.address_size', '.file', '.global .align 1 .b8 _$_str')):
                raise Unknown(f'{path}:{line}: {text}')
            continue
        if not body:  # parameters, then .maxntid and other directives, which only ptxas needs
            if header is not None:
                header += ' ' + text
                if ')' in header:
                    _parameters(kernel, header.split(')')[0])
                    header = None
            if text.startswith('.reqntid'):
                kernel.threads = math.prod(int(n) for n in text.split(None, 1)[1].split(','))
            if text == '{':
                body = True
            continue
        if text == '}':
            kernels[kernel.name], kernel = kernel, None
        elif text and not text.startswith('.loc'):
            kernel.statements.append((line, text))
    return kernels


def _symbols(operands):
    for o in operands:
        if o[0] == 'symbol':
            yield o[1]
        elif o[0] == 'address':
            yield from _symbols([o[1]])


def _statement(kernel, variables, path, line, text):
    m = re.fullmatch(r'([\w$]+):', text)
    if m:
        kernel.labels[m.group(1)] = len(kernel.code)
        return
    m = re.fullmatch(r'\{\s*(.*;)\s*\}', text)  # inline assembly with a scope of its own that declares nothing
    if m:
        text = m.group(1)
    for part in filter(None, (p.strip() for p in text.split(';'))):
        if part.startswith('.reg'):
            m = re.fullmatch(r'\.reg\s+\.(\w+)\s+(%\w+)<(\d+)>', part)
            if not m:
                raise Unknown(f'{path}:{line}: {part}')
            for i in range(int(m.group(3))):
                kernel.registers[f'{m.group(2)}{i}'] = m.group(1)
        elif part.startswith('.shared'):
            name, *rest = _shared(part)
            variables[name] = rest
        elif part.startswith('.pragma'):
            continue
        elif part.startswith('.'):
            raise Unknown(f'{path}:{line}: {part}')
        else:
            try:
                kernel.code.append(_instruction(line, part))
            except (AttributeError, ValueError):
                raise Unknown(f'{path}:{line}: {part}')
