#!/usr/bin/env python3
"""Turns PTX into a library of C++, whose kernels the stand-in runs as it runs ours: to_cpp.py FILE.ptx

Writes the library's path to stdout. It is kept in build/ptx, or in PTX_ROOM, under a hash of everything that it depends
on. The stand-in for the CUDA driver calls this when a program loads PTX (tests/gpu/standin/module.cpp). Instructions
that are not in the table end it with their text.
"""
import hashlib
import os
import re
import subprocess
import sys

import ptx_text
from ptx_text import BYTES, Unknown

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.abspath(os.path.join(HERE, '..', '..', '..'))
C = {'pred': 'bool', 'u8': 'uint8_t', 's8': 'int8_t', 'b8': 'uint8_t', 'u16': 'uint16_t', 's16': 'int16_t',
     'b16': 'uint16_t', 'bf16': 'uint16_t', 'u32': 'uint32_t', 's32': 'int32_t', 'b32': 'uint32_t', 'u64': 'uint64_t',
     's64': 'int64_t', 'b64': 'uint64_t', 'f32': 'float', 'f64': 'double'}
FLOATS = {'f32', 'f64'}
SIGNS = dict(eq='==', ne='!=', lt='<', le='<=', gt='>', ge='>=', lo='<', ls='<=', hi='>', hs='>=')
OPPOSITES = dict(equ='ne', neu='eq', ltu='ge', leu='gt', gtu='le', geu='lt')
# words that change how fast an access is, what a subnormal becomes, or how an approximation may err
WORDS = {'nc', 'weak', 'volatile', 'relaxed', 'ca', 'cg', 'cs', 'cv', 'wb', 'wt', 'lu', 'ftz', 'approx', 'full'}
NOTHING = {'membar', 'fence', 'griddepcontrol', 'nanosleep', 'prefetch', 'discard', 'applypriority'}
FUNCTIONS = dict(ex2='exp2f', lg2='log2f', sin='sinf', cos='cosf', tanh='tanhf')
SPECIAL = {'%tid': 'threadIdx', '%ctaid': 'blockIdx', '%ntid': 'blockDim', '%nctaid': 'gridDim'}


class Writer:
    """Writes a kernel's instructions as lines of C++."""

    def __init__(self, kernel):
        self.kernel = kernel
        kernel.parse()
        at, self.shared = 0, {}
        for name, align, size in kernel.shared:
            at = ptx_text.aligned(at, align)
            self.shared[name], at = at, at + size
        if kernel.dynamic:
            if kernel.shared:
                raise Unknown(f'{kernel.name}: static shared memory besides dynamic')
            self.shared[kernel.dynamic] = 0
        self.static = at

    # ---- operands ----

    def variable(self, name):
        return 'r_' + name[1:].replace('.', '_')

    def get(self, o, type_):
        """Returns the operand as an expression of the type."""
        want = C[type_]
        if o[0] == 'number':
            text = o[1]
            if text[:2] in ('0f', '0F', '0d', '0D'):
                return f"bits<{want}>(0x{text[2:]}{'u' if text[1] in 'fF' else 'ull'})"
            if type_ in FLOATS:
                return f'({want}){float(text)!r}'
            return f'({want}){int(text, 0) & (1 << 64) - 1}ull' if type_ != 'pred' else text
        if o[0] == 'symbol':
            if o[1] in self.shared:
                return f'({want}){self.shared[o[1]]}'
            raise Unknown(f'{o[1]} is no shared variable')
        if o[0] != 'reg':
            raise Unknown(str(o))
        stem, _, axis = o[1].partition('.')
        if stem in SPECIAL:
            return f'({want}){SPECIAL[stem]}.{axis}'
        if o[1] == '%laneid':
            return f'({want})grid_lane()'
        have = self.kernel.registers[o[1]]
        if C[have] == want:
            return self.variable(o[1])
        if BYTES[have] == BYTES[type_]:
            return f'bits<{want}>({self.variable(o[1])})'
        if BYTES[have] > BYTES[type_] and type_ not in FLOATS:
            return f'({want}){self.variable(o[1])}'
        raise Unknown(f'{o[1]} as {type_}')

    def put(self, o, value, type_):
        """Returns the statement that assigns. A smaller integer is extended by its sign or by zeros."""
        if o[1] == '_':
            return f'(void)({value});'
        have = self.kernel.registers[o[1]]
        if C[have] == C[type_]:
            return f'{self.variable(o[1])} = {value};'
        if BYTES[have] == BYTES[type_]:
            return f'{self.variable(o[1])} = bits<{C[have]}>(({C[type_]})({value}));'
        if BYTES[have] > BYTES[type_] and type_ not in FLOATS:
            return f'{self.variable(o[1])} = ({C[have]})({C[type_]})({value});'
        raise Unknown(f'{o[1]} from {type_}')

    # ---- instructions ----

    def write(self, i):
        """Returns the lines of an instruction."""
        try:
            lines = getattr(self, 'op_' + i.op[0], self.arithmetic)(i)
        except (Unknown, KeyError, IndexError, ValueError, AttributeError) as why:
            raise Unknown(f'{self.kernel.name}: line {i.line}: unknown instruction: {i.text} ({why})')
        if not i.guard:
            return lines
        p = f"{'!' if i.guard[1] else ''}{self.variable(i.guard[0])}"
        return [f'if ({p}) {{', *lines, '}']

    def arithmetic(self, i):
        """Handles instructions that map values: a destination and sources of one type."""
        name, type_ = i.op[0], i.op[-1]
        words = [w for w in i.op[1:-1] if w not in WORDS]
        if name in NOTHING:
            return [';']
        d, *sources = i.operands
        x = [lambda n=n, t=type_: self.get(sources[n], t) for n in range(len(sources))]
        result = type_
        if name in ('add', 'sub', 'mul') and words in ([], ['rn'], ['lo']):
            value = f"{x[0]()} {dict(add='+', sub='-', mul='*')[name]} {x[1]()}"
        elif name in ('mul', 'mad') and words == ['wide']:
            result = type_[0] + str(16 * BYTES[type_])
            value = f'({C[result]}){x[0]()} * ({C[result]}){x[1]()}'
            value += f' + {self.get(sources[2], result)}' if name == 'mad' else ''
        elif name == 'mul' and words == ['hi'] and type_ in ('s32', 'u32'):
            wide = C[type_[0] + '64']
            value = f'({wide}){x[0]()} * ({wide}){x[1]()} >> 32'
        elif name == 'mul' and words == ['hi'] and type_ in ('s64', 'u64'):
            wide = '__int128' if type_ == 's64' else 'unsigned __int128'
            value = f'({wide}){x[0]()} * ({wide}){x[1]()} >> 64'
        elif name == 'mad' and words == ['lo']:
            value = f'{x[0]()} * {x[1]()} + {x[2]()}'
        elif name == 'fma' and words == ['rn']:
            value = f'times_add({x[0]()}, {x[1]()}, {x[2]()})'
        elif name == 'fma' and words == ['rm'] and type_ == 'f32':
            value = f'times_add_down({x[0]()}, {x[1]()}, {x[2]()})'
        elif name in ('div', 'rem') and words in ([], ['rn']):
            value = f"{x[0]()} {'/' if name == 'div' else '%'} {x[1]()}"
        elif name in ('min', 'max') and words == []:
            value = f"{'least' if name == 'min' else 'most'}({x[0]()}, {x[1]()})"
        elif name in ('min', 'max') and words == ['NaN'] and type_ == 'f32':
            value = f"{'least' if name == 'min' else 'most'}_nan({x[0]()}, {x[1]()})"
        elif name == 'neg' and words == []:
            value = f'-{x[0]()}'
        elif name == 'abs' and words == []:
            value = f'fabs({x[0]()})' if type_ in FLOATS else f'llabs({x[0]()})'
        elif name in FUNCTIONS and type_ == 'f32' and words == []:
            value = f'{FUNCTIONS[name]}({x[0]()})'
        elif name in ('sqrt', 'rcp', 'rsqrt') and type_ in FLOATS and words in ([], ['rn']):
            value = dict(sqrt='sqrt({})', rcp='1 / {}', rsqrt='1 / sqrt({})')[name].format(f'(double){x[0]()}')
        elif name in ('and', 'or', 'xor') and words == []:
            value = f"{x[0]()} {dict(zip(('and', 'or', 'xor'), '&|^'))[name]} {x[1]()}"
        elif name == 'not' and words == []:
            value = f"{'!' if type_ == 'pred' else '~'}{x[0]()}"
        elif name in ('shl', 'shr') and words == []:
            value = f"shift_{'left' if name == 'shl' else 'right'}<{C[type_]}>({x[0]()}, {self.get(sources[1], 'u32')})"
        elif name == 'selp' and words == []:
            value = f"{self.get(sources[2], 'pred')} ? {x[0]()} : {x[1]()}"
        elif name == 'copysign' and type_ == 'f32':
            value = f'copysignf({x[1]()}, {x[0]()})'
        elif name == 'popc' and type_ == 'b32':
            value, result = f'__builtin_popcount({x[0]()})', 'u32'
        elif name == 'clz' and type_ == 'b32':
            value, result = f'({x[0]()} ? __builtin_clz({x[0]()}) : 32)', 'u32'
        elif name == 'prmt' and words == [] and type_ == 'b32':
            value = f'permute({x[0]()}, {x[1]()}, {x[2]()})'
        elif name == 'lop3' and words == [] and type_ == 'b32':
            value = f'logic({x[0]()}, {x[1]()}, {x[2]()}, {x[3]()})'
        elif name == 'shf' and words in (['l', 'wrap'], ['r', 'wrap']):
            value = f"funnel_{'left' if words[0] == 'l' else 'right'}({x[0]()}, {x[1]()}, {x[2]()})"
        elif name == 'bfe' and words == []:
            value = f"bit_field<{C[type_]}>({x[0]()}, {self.get(sources[1], 'u32')}, {self.get(sources[2], 'u32')})"
        elif name == 'cvta':  # global addresses are generic ones
            value = x[0]()
        elif name == 'createpolicy':
            value = '0'
        else:
            raise Unknown('not in the table')
        return [self.put(d, f'({C[result]})({value})', result)]

    def op_setp(self, i):
        """ "setp": comparisons with a NaN are false, and those that end in u true. A third source is combined."""
        words, type_ = [w for w in i.op[1:-1] if w not in WORDS], i.op[-1]
        compare, d = words[0], i.operands[0]
        x, y = self.get(i.operands[1], type_), self.get(i.operands[2], type_)
        if type_ in FLOATS and compare in OPPOSITES:
            value = f"!({x} {SIGNS[OPPOSITES[compare]]} {y})" if compare not in ('equ', 'neu') else \
                (f'({x} != {y})' if compare == 'neu' else f'!({x} < {y} || {x} > {y})')
        elif type_ in FLOATS and compare in ('num', 'nan'):
            value = f"{'!' if compare == 'num' else ''}({x} != {x} || {y} != {y})"
        elif type_ in FLOATS and compare == 'ne':
            value = f'({x} < {y} || {x} > {y})'
        else:
            value = f'({x} {SIGNS[compare]} {y})'
        if len(words) == 2:
            third = i.operands[3]
            other = f"!{self.get(('reg', third[1][1:]), 'pred')}" if third[1].startswith('!') else self.get(third, 'pred')
            value = f"({value} {dict(zip(('and', 'or', 'xor'), ('&&', '||', '!=')))[words[1]]} {other})"
        elif len(words) > 2:
            raise Unknown('not in the table')
        if d[0] == 'pair':
            return [self.put(d[1], value, 'pred'), self.put(d[2], f'!{self.variable(d[1][1])}', 'pred')]
        return [self.put(d, value, 'pred')]

    def op_mov(self, i):
        """ "mov", which also packs halves into a register, the first one low, and unpacks them."""
        type_, (d, s) = i.op[1], i.operands
        half = {'b32': 'b16', 'b64': 'b32'}.get(type_)
        if d[0] == 'vector':
            return [self.put(o, f"({C[half]})({self.get(s, type_)} >> {n * 8 * BYTES[half]})", half)
                    for n, o in enumerate(d[1])]
        if s[0] == 'vector':
            low, high = (self.get(o, half) for o in s[1])
            return [self.put(d, f'(({C[type_]}){high} << {8 * BYTES[half]} | {low})', type_)]
        return [self.put(d, self.get(s, type_), type_)]

    def op_cvt(self, i):
        """ "cvt": between integers it truncates or extends, by the source's type."""
        *rounding, to, of = [w for w in i.op[1:] if w not in WORDS]
        d, s = i.operands
        x = self.get(s, of)
        whole = dict(rzi='trunc', rni='nearbyint', rmi='floor', rpi='ceil')
        if to == 'bf16' and of == 'f32' and rounding == ['rn']:
            return [self.put(d, f'to_bf16({x})', 'b16')]
        if to == 'f32' and of == 'bf16' and not rounding:
            return [self.put(d, f'from_bf16({x})', 'f32')]
        if of in FLOATS and to not in FLOATS and rounding and rounding[0] in whole:
            return [self.put(d, f'to_integer<{C[to]}>({whole[rounding[0]]}((double){x}))', to)]
        if to == of == 'f32' and rounding == ['sat']:
            return [self.put(d, f'fminf(fmaxf({x}, 0), 1)', 'f32')]
        if of in FLOATS and to == of and rounding and rounding[0] in whole:
            return [self.put(d, f'({C[to]}){whole[rounding[0]]}({x})', to)]
        if rounding not in ([], ['rn']) or 'bf16' in (to, of):
            raise Unknown('not in the table')
        return [self.put(d, f'({C[to]}){x}', to)]

    def access(self, i, address, data):
        """ "ld", "st", "Vectors as Operands": a vector is accessed at once, and is aligned to its whole size."""
        words = [w for w in i.op[1:-1] if w not in WORDS and not re.match(r'L[12]::', w) and w not in
                 ('cache_hint', 'gpu', 'cta', 'sys', 'relaxed')]
        count = len(data[1]) if data[0] == 'vector' else 1
        if words and re.fullmatch(r'v[248]', words[-1]):
            if int(words.pop()[1]) != count:
                raise Unknown('the vector has another length')
        elif count != 1:
            raise Unknown('the vector has no length')
        space = {(): 'global', ('global',): 'global', ('shared',): 'shared', ('shared::cta',): 'shared',
                 ('param',): 'param'}[tuple(words)]
        type_ = C[i.op[-1]]
        base, offset = address[1], address[2]
        if space == 'param':
            return f'(const {type_} *)(m.params + {self.kernel.params[base[1]][0] + offset})', count
        where = self.get(base, 'u64' if space == 'global' else 'u32')
        if space == 'global':
            return f'global_at<{type_}>({where} + (uint64_t){offset}ll, {count}, {i.line})', count
        return f'shared_at<{type_}>(m, {where} + (uint32_t){offset}, {count}, {i.line})', count

    def op_ld(self, i):
        d, address, *_ = i.operands  # a cache policy may follow
        at, _ = self.access(i, address, d)
        targets = d[1] if d[0] == 'vector' else [d]
        return ['{', f'const {C[i.op[-1]]} *from = {at};',
                *[self.put(o, f'from[{n}]', i.op[-1]) for n, o in enumerate(targets)], '}']

    def op_st(self, i):
        address, s, *_ = i.operands
        at, _ = self.access(i, address, s)
        sources = s[1] if s[0] == 'vector' else [s]
        return ['{', f'{C[i.op[-1]]} *to = {at};',
                *[f'to[{n}] = {self.get(o, i.op[-1])};' for n, o in enumerate(sources)], '}']

    def op_atom(self, i):
        """ "atom", "red": one thread runs at a time, so a load and a store are enough."""
        words = [w for w in i.op[1:-1] if w not in ('gpu', 'cta', 'sys', 'relaxed', 'acq_rel', 'acquire', 'release')]
        if words[:2] != ['global', 'add'] or not re.fullmatch(r'(v[248])?', ''.join(words[2:])):
            raise Unknown('not in the table')
        type_ = i.op[-1]
        *d, address, s = i.operands
        sources, targets = (o[1] if o[0] == 'vector' else [o] for o in (s, d[0] if d else ('vector', [])))
        where = f"{self.get(address[1], 'u64')} + (uint64_t){address[2]}ll"
        lines = ['{', f'{C[type_]} *to = global_at<{C[type_]}>({where}, {len(sources)}, {i.line}), old;']
        for n, o in enumerate(sources):
            lines += [f'old = to[{n}];', f'to[{n}] = old + {self.get(o, type_)};']
            lines += [self.put(targets[n], 'old', type_)] if targets else []
        return lines + ['}']

    op_red = op_atom

    def op_bar(self, i):
        if i.op[1:] == ['warp', 'sync']:
            return [f"grid_exchange({self.get(i.operands[0], 'u32')}, GRID_SYNC, 0, 0, {{FILE_NAME, {i.line}}});"]
        if i.op[1:] != ['sync'] or i.operands != [('number', '0')]:
            raise Unknown('not in the table')
        return [f'grid_sync({{FILE_NAME, {i.line}}});']

    def op_shfl(self, i):
        if i.op[1] != 'sync' or i.op[2] not in ('idx', 'bfly', 'up', 'down') or i.op[3] != 'b32':
            raise Unknown('not in the table')
        d, s, b, c, mask = i.operands
        register, predicate = (d[1], d[2]) if d[0] == 'pair' else (d, None)
        got = ', '.join([self.get(s, 'b32'), self.get(b, 'u32'), self.get(c, 'u32'), self.get(mask, 'u32')])
        lines = ['{', 'bool reads;', f'uint32_t got = shuffle(MODE_{i.op[2]}, {got}, &reads, {{FILE_NAME, {i.line}}});',
                 self.put(register, 'got', 'b32')]
        return lines + ([self.put(predicate, 'reads', 'pred')] if predicate else []) + ['}']

    def op_ldmatrix(self, i):
        """ "ldmatrix": lane 8 i + j has the address of row j of matrix i."""
        words = [w for w in i.op[1:] if w != 'trans']
        if words[:3] != ['sync', 'aligned', 'm8n8'] or words[3] not in ('x1', 'x2', 'x4') or words[4:] not in (
                ['shared', 'b16'], ['shared::cta', 'b16']):
            raise Unknown('not in the table')
        d, address = i.operands
        at = f"{self.get(address[1], 'u32')} + {address[2]}"
        return ['{', f'const uint32_t at = {at};', *[
            self.put(o, f"matrix_part(m, at, {n}, {str('trans' in i.op).lower()}, {{FILE_NAME, {i.line}}})", 'b32')
            for n, o in enumerate(d[1])], '}']

    def op_stmatrix(self, i):
        words = [w for w in i.op[1:] if w != 'trans']
        if words[:3] != ['sync', 'aligned', 'm8n8'] or words[3] not in ('x1', 'x2', 'x4') or words[4:] not in (
                ['shared', 'b16'], ['shared::cta', 'b16']):
            raise Unknown('not in the table')
        address, s = i.operands
        at = f"{self.get(address[1], 'u32')} + {address[2]}"
        return ['{', f'const uint32_t at = {at};', *[
            f"give_matrix_part(m, at, {n}, {str('trans' in i.op).lower()}, {self.get(o, 'b32')}, {{FILE_NAME, {i.line}}});"
            for n, o in enumerate(s[1])], '}']

    def op_vote(self, i):
        if i.op[1:] != ['sync', 'ballot', 'b32']:
            raise Unknown('not in the table')
        d, p, mask = i.operands
        got = f"grid_exchange({self.get(mask, 'u32')}, GRID_BALLOT, {self.get(p, 'pred')}, 0, {{FILE_NAME, {i.line}}})"
        return [self.put(d, f'(uint32_t){got}', 'b32')]

    def op_redux(self, i):
        if i.op[1:] != ['sync', 'or', 'b32']:
            raise Unknown('not in the table')
        d, s, mask = i.operands
        got = f"any_bits({self.get(s, 'b32')}, {self.get(mask, 'u32')}, {{FILE_NAME, {i.line}}})"
        return [self.put(d, got, 'b32')]

    def op_bra(self, i):
        return [f'goto {self.label(i.operands[0][1])};']

    def op_ret(self, i):
        return ['return;']

    op_exit = op_ret

    # ---- kernels ----

    def label(self, name):
        return 'L_' + re.sub(r'\W', '_', name)

    def function(self):
        """Returns the kernel as a function, and as a variable that describes it."""
        kernel, labels = self.kernel, {}
        for name, at in kernel.labels.items():
            labels.setdefault(at, []).append(self.label(name))
        lines = [f'static void run_{kernel.name}(const char *params, char *shared, unsigned shared_bytes) {{']
        if self.static:
            raise Unknown(f'{kernel.name}: static shared memory')
        lines += ['const memory m = {params, shared, shared_bytes};', '(void)m;']
        lines += [f'{C[t]} {self.variable(name)} = 0;' for name, t in kernel.registers.items()]
        for at, i in enumerate(kernel.code):
            lines += [f'{label}:;' for label in labels.get(at, [])]
            lines += self.write(i)
        lines += [f'{label}:;' for label in labels.get(len(kernel.code), [])] + ['}']
        params = list(kernel.params.items())
        columns = {'bytes': ('unsigned', [size for _, (_, size) in params]),
                   'offset': ('unsigned', [at for _, (at, _) in params]),
                   'pointer': ('bool', [str(name in kernel.pointers).lower() for name, _ in params])}
        for what, (type_, values) in columns.items():
            lines.append(f"static const {type_} {what}_{kernel.name}[] = {{{', '.join(map(str, values or [0]))}}};")
        lines += ['extern "C" {', f'extern const grid_kernel {kernel.name};',
                  f'const grid_kernel {kernel.name} = {{run_{kernel.name}, {len(params)}, bytes_{kernel.name}, '
                  f'offset_{kernel.name}, pointer_{kernel.name}, {kernel.threads or 0}}};', '}']
        return '\n'.join(lines) + '\n'


def translate(path):
    text = '#include "kernel.h"\n#define FILE_NAME "PTX"\n'
    return text + '\n'.join(Writer(kernel).function() for kernel in ptx_text.read(path).values())


def main(path):
    parts = [open(os.path.join(HERE, name)).read() for name in ('kernel.h', 'to_cpp.py', 'ptx_text.py')]
    parts += [open(os.path.join(HERE, '..', 'standin', 'grid.h')).read(), open(path).read()]
    room = os.environ.get('PTX_ROOM', os.path.join(ROOT, 'build', 'ptx'))
    os.makedirs(room, exist_ok=True)
    stem = os.path.join(room, hashlib.sha256('\0'.join(parts).encode()).hexdigest()[:24])
    if not os.path.exists(stem + '.so'):
        source = f'{stem}.{os.getpid()}.cpp'
        with open(source, 'w') as file:
            file.write(translate(path))
        subprocess.run(['g++', '-std=c++17', '-O1', '-w', '-ffp-contract=off', '-shared', '-fPIC', '-I' + HERE, '-o',
                        source + '.so', source], check=True)
        os.rename(source + '.so', stem + '.so')
        os.remove(source)
    print(stem + '.so')


if __name__ == '__main__':
    try:
        main(sys.argv[1])
    except Unknown as why:
        sys.exit(f'{sys.argv[1]}: {why}')
