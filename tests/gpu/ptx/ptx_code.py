"""Translates PTX instructions to Python source over numpy arrays with an element for each thread.

The PTX ISA describes each instruction in a section of its name, under "Instruction Set". A register is an array of
bits, with the size from its declaration; an instruction's type says how to interpret them. M is the mask of threads
that execute, or None for all.
"""
import struct

import numpy as np

from ptx_text import BYTES, Unknown

KIND = {'pred': '?', 'u8': 'u1', 's8': 'i1', 'b8': 'u1', 'u16': 'u2', 's16': 'i2', 'b16': 'u2', 'u32': 'u4',
        's32': 'i4', 'b32': 'u4', 'u64': 'u8', 's64': 'i8', 'b64': 'u8', 'f32': 'f4', 'f64': 'f8'}
INTEGERS = {'u16', 's16', 'u32', 's32', 'u64', 's64'}
FLOATS = {'f32', 'f64'}
BITS = {'b16', 'b32', 'b64'}
STOPS = {'bra', 'ret', 'exit', 'bar'}
TOGETHER = {'shfl', 'vote', 'mma', 'ldmatrix'}  # executed by the threads of a warp together


class Writer:
    """Writes a kernel's instructions as lines of Python. symbol: returns the value of a variable's or a parameter's
    name. constants: the array of numbers that the lines call K."""

    def __init__(self, kernel, symbol):
        self.kernel, self.symbol, self.constants, self.index = kernel, symbol, [], {}
        self.number = {name: i for i, name in enumerate(kernel.registers)}

    # ---- operands ----

    def kind_of(self, register):
        return KIND[self.kernel.registers[register]]

    def constant(self, text, type_):
        key = (text, type_)
        if key not in self.index:
            if text[:2] in ('0f', '0F'):
                value = np.frombuffer(struct.pack('<I', int(text[2:], 16)), 'f4')[0]
            elif text[:2] in ('0d', '0D'):
                value = np.frombuffer(struct.pack('<Q', int(text[2:], 16)), 'f8')[0]
            elif type_ == 'pred':
                value = np.bool_(int(text))
            elif type_ in FLOATS:
                value = np.dtype(KIND[type_]).type(float(text))
            else:
                n = BYTES[type_]
                value = np.frombuffer((int(text, 0) & (1 << 8 * n) - 1).to_bytes(n, 'little'), KIND[type_])[0]
            self.index[key] = len(self.constants)
            self.constants.append(value)
        return f'K[{self.index[key]}]'

    def get(self, o, type_):
        """Returns the operand interpreted as the type: an array, or a number."""
        want = KIND[type_]
        if o[0] == 'number':
            return self.constant(o[1], type_)
        if o[0] == 'symbol':
            return self.constant(str(self.symbol(o[1])), type_)
        if o[0] != 'reg':
            raise Unknown(str(o))
        if o[1] not in self.number:
            return f"S.special('{o[1]}', '{want}')"
        have, at = self.kind_of(o[1]), f'R[{self.number[o[1]]}]'
        if have == want:
            return at
        if have[1:] == want[1:]:
            return f"{at}.view('{want}')"
        if int(have[1:]) > int(want[1:]) and want[0] in 'ui':
            return f"{at}.astype('u{want[1:]}').view('{want}')"
        raise Unknown(f'{o[1]} as {type_}')

    def put(self, o, value, type_, masked):
        """Returns the line that assigns; a smaller integer is extended by its sign or by zeros (Operand Size Exceeding
        Instruction-Type Size)."""
        have, got, at = self.kind_of(o[1]), KIND[type_], f'R[{self.number[o[1]]}]'
        if have != got:
            if have[1:] == got[1:]:
                value = f"({value}).view('{have}')"
            elif got[0] in 'ui' and int(got[1:]) < int(have[1:]):
                value = f"({value}).astype('{'i' if got[0] == 'i' else 'u'}{have[1:]}').view('{have}')"
            else:
                raise Unknown(f'{o[1]} from {type_}')
        return f'{at} = np.where(M, {value}, {at})' if masked else f'{at} = {value}'

    # ---- instructions ----

    def write(self, i, masked):
        """Returns the lines of an instruction that is neither a branch nor a barrier."""
        name = i.op[0]
        try:
            lines = getattr(self, 'op_' + name, self.arithmetic)(i, masked or bool(i.guard))
        except (Unknown, KeyError, IndexError, ValueError) as why:
            raise Unknown(f'{self.kernel.name}: line {i.line}: unknown instruction: {i.text} ({why})')
        if not i.guard:
            return lines
        if name in TOGETHER:
            raise Unknown(f'{self.kernel.name}: line {i.line}: a guard before {i.text}')
        at = f'{"~" if i.guard[1] else ""}R[{self.number[i.guard[0]]}]'
        return [f'G = M; M = {at}' + (' & G' if masked else ''), *lines, 'M = G']

    def arithmetic(self, i, masked):
        """Handles instructions that map values: a destination and up to three sources of one type."""
        # "Floating Point Instructions": none of these flushes subnormals. .rn rounds to nearest even; add, sub and mul
        # do so by default. ptxas may still contract instructions without .rn; here the PTX is taken literally.
        name, words, type_ = i.op[0], [w for w in i.op[1:-1]], i.op[-1]
        d, *sources = i.operands
        s32 = KIND.get(type_)

        def source(n, as_=None):
            return self.get(sources[n], as_ or type_)
        result = type_
        if name in ('add', 'sub', 'mul') and type_ in FLOATS and words in ([], ['rn']):
            value = f"{source(0)} {dict(add='+', sub='-', mul='*')[name]} {source(1)}"
        elif name == 'fma' and type_ in FLOATS and words == ['rn']:
            value = f"S.fma_{type_}({source(0)}, {source(1)}, {source(2)}, M)"
        # "Integer Arithmetic Instructions": modulo 2^n; .wide has twice the bits, .hi the upper half of them
        elif name in ('add', 'sub') and type_ in INTEGERS and not words:
            value = f"{source(0)} {'+' if name == 'add' else '-'} {source(1)}"
        elif name in ('mul', 'mad') and type_ in INTEGERS and words in (['lo'], ['wide']):
            x, y = source(0), source(1)
            if words == ['wide']:
                result = type_[0] + str(16 * BYTES[type_])
                x, y = (f"S.wide({v}, '{KIND[result]}')" for v in (x, y))
            value = f'{x} * {y}' + (f' + {self.get(sources[2], result)}' if name == 'mad' else '')
        elif name == 'mul' and words == ['hi'] and type_ in ('s32', 'u32'):
            wide = KIND[type_[0] + '64']
            value = f"((S.wide({source(0)}, '{wide}') * S.wide({source(1)}, '{wide}')) >> 32).astype('{s32}')"
        elif name in ('div', 'rem') and type_ in INTEGERS and not words:
            value = f'S.{name}({source(0)}, {source(1)}, M, {i.line})'
        elif (name, type_) in (('div', 'f32'), ('div', 'f64')) and words == ['rn']:
            value = f'{source(0)} / {source(1)}'
        elif name == 'div' and type_ == 'f32' and words in (['approx'], ['full']):
            value = f'S.div_approx({source(0)}, {source(1)})'
        elif name in ('sqrt', 'rcp') and type_ in FLOATS and words == ['rn']:
            value = f'np.sqrt({source(0)})' if name == 'sqrt' else f"np.dtype('{s32}').type(1) / {source(0)}"
        elif (name, type_) in (('ex2', 'f32'), ('lg2', 'f32')) and words == ['approx']:
            # "ex2", "lg2": correctly rounded here, within 2^-22 on a device
            value = f"np.{'exp2' if name == 'ex2' else 'log2'}({source(0)}.astype('f8')).astype('f4')"
        elif name in ('min', 'max') and type_ in FLOATS and not words:  # "max": a NaN gives way to a number
            value = f'np.f{name}({source(0)}, {source(1)})'
        elif name in ('min', 'max') and type_ in INTEGERS and not words:
            value = f'np.{name}imum({source(0)}, {source(1)})'
        elif name in ('neg', 'abs') and (type_ in FLOATS or type_[0] == 's') and not words:
            value = f'-{source(0)}' if name == 'neg' else f'np.abs({source(0)})'
        # "Logic and Shift Instructions", then "selp", "popc", "bfi", "cvta"
        elif name in ('and', 'or', 'xor') and type_ in BITS | {'pred'}:
            value = f"{source(0)} {dict(zip(('and', 'or', 'xor'), '&|^'))[name]} {source(1)}"
        elif name == 'not' and type_ in BITS | {'pred'}:
            value = f'~{source(0)}'
        elif name == 'shl' and type_ in BITS or name == 'shr' and type_ in INTEGERS | BITS:
            value = f"S.{name}({source(0)}, {source(1, 'u32')})"
        elif name == 'selp' and not words:
            value = f"np.where({self.get(sources[2], 'pred')}, {source(0)}, {source(1)})"
        elif name == 'popc' and type_ == 'b32':
            value, result = f'S.popc({source(0)})', 'u32'
        elif name == 'bfi' and type_ in ('b32', 'b64'):
            value = f"S.bfi({source(0)}, {source(1)}, {self.get(sources[2], 'u32')}, {self.get(sources[3], 'u32')})"
        elif name == 'cvta' and words in (['to', 'global'], ['global'], []):  # global addresses are generic ones
            value = source(0)
        else:
            raise Unknown('not in the table')
        return [self.put(d, value, result, masked)]

    def op_setp(self, i, masked):
        """ "setp", "Floating Point Comparisons": ordered comparisons with a NaN are false. ne is ordered too, unlike
        numpy's !=."""
        _, compare, type_ = i.op
        d, x, y = i.operands[0], self.get(i.operands[1], type_), self.get(i.operands[2], type_)
        sign = dict(eq='==', ne='!=', lt='<', le='<=', gt='>', ge='>=')
        if type_ in FLOATS and compare == 'ne':
            value = f'({x} < {y}) | ({x} > {y})'
        elif type_ in FLOATS and compare in ('equ', 'ltu', 'leu', 'gtu', 'geu'):
            value = f"~({x} {dict(equ='!=', ltu='>=', leu='>', gtu='<=', geu='<')[compare]} {y})"
            if compare == 'equ':
                value = f'({x} == {y}) | ({x} != {x}) | ({y} != {y})'
        elif type_ in FLOATS and compare == 'neu':
            value = f'{x} != {y}'
        elif type_ in FLOATS and compare in ('num', 'nan'):
            value = f"({x} {'==' if compare == 'num' else '!='} {x}) {'&' if compare == 'num' else '|'} " \
                    f"({y} {'==' if compare == 'num' else '!='} {y})"
        else:
            value = f'{x} {sign[compare]} {y}'
        return [self.put(d, value, 'pred', masked)]

    def op_mov(self, i, masked):
        """ "mov", which also packs two halves into a register, the first one low, and unpacks them."""
        type_, (d, s) = i.op[1], i.operands
        half = {'b32': 'b16', 'b64': 'b32'}.get(type_)
        if d[0] == 'vector':
            lines = [f"T = S.array({self.get(s, type_)}, '{KIND[type_]}').view('{KIND[half]}').reshape(-1, 2)"]
            return lines + [self.put(o, f'T[:, {n}].copy()', half, masked) for n, o in enumerate(d[1])]
        if s[0] == 'vector':
            value = f"S.pair({self.get(s[1][0], half)}, {self.get(s[1][1], half)}, '{KIND[type_]}')"
        elif s[0] == 'reg' and s[1] in self.number:
            value = self.get(s, type_)
        else:
            value = f"S.array({self.get(s, type_)}, '{KIND[type_]}')"
        return [self.put(d, value, type_, masked)]

    def op_cvt(self, i, masked):
        """ "cvt": between integers it truncates or extends, by the source type; .rzi drops the fraction."""
        *rounding, to, of = i.op[1:]
        d, s = i.operands
        if to == 'bf16' and of == 'f32' and rounding == ['rn']:
            return [self.put(d, f"S.to_bf16({self.get(s, 'f32')})", 'b16', masked)]
        if to == 'f32' and of == 'bf16' and not rounding:
            return [self.put(d, f"S.pair(0, {self.get(s, 'b16')}, 'f4')", 'f32', masked)]
        whole = to in INTEGERS and of in INTEGERS and not rounding
        if not (whole or to in FLOATS and of in INTEGERS and rounding == ['rn'] or (to, of) == ('f64', 'f32') and
                not rounding or (to, of) == ('f32', 'f64') and rounding == ['rn'] or to in ('s32', 's64') and of == 'f64' and
                rounding == ['rzi']):
            raise Unknown('not in the table')
        return [self.put(d, f"({self.get(s, of)}).astype('{KIND[to]}')", to, masked)]

    def _access(self, i, address, data):
        """ "ld", "st", "Vectors as Operands": a vector is accessed at once, and is aligned to its whole size."""
        words = i.op[1:-1]
        count = len(data[1]) if data[0] == 'vector' else 1
        if words and words[-1] in ('v2', 'v4'):
            if int(words.pop()[1]) != count:
                raise Unknown('the vector has another length')
        elif count != 1:
            raise Unknown('the vector has no length')
        # an address without a state space is generic: here in global memory, since nothing makes generic addresses of
        # other spaces
        space = {(): 'global', ('global',): 'global', ('shared',): 'shared', ('param',): 'param'}[tuple(words)]
        base, offset = address[1], address[2]
        type_ = 'u64' if space != 'shared' else 'u32'
        return space, f"{self.get(base, type_)}, {offset}, np.dtype('{KIND[i.op[-1]]}')", count

    def op_ld(self, i, masked):
        d, address = i.operands
        space, at, count = self._access(i, address, d)
        targets = d[1] if d[0] == 'vector' else [d]
        line = f'T = S.load_{space}({at}, {count}, M, {i.line})'
        return [line] + [self.put(o, f'T[{n}]', i.op[-1], masked) for n, o in enumerate(targets)]

    def op_st(self, i, masked):
        address, s = i.operands
        space, at, count = self._access(i, address, s)
        sources = s[1] if s[0] == 'vector' else [s]
        values = ', '.join(self.get(o, i.op[-1]) for o in sources)
        return [f'S.store_{space}({at}, ({values},), M, {i.line})']

    def op_cp(self, i, masked):
        """ "cp.async", with all of its source or without a source size, "cp.async.commit_group" and
        "cp.async.wait_group"."""
        words = i.op[1:]
        if words == ['async', 'commit_group']:
            return ['S.commit(M)']
        if words == ['async', 'wait_group']:
            return [f'S.wait({int(i.operands[0][1])}, M, {i.line})']
        to, of, *sizes = i.operands
        bytes_ = int(sizes[0][1])
        if words not in (['async', 'cg', 'shared', 'global'], ['async', 'ca', 'shared', 'global']) or \
                bytes_ not in ((16,) if words[1] == 'cg' else (4, 8, 16)) or any(s != sizes[0] for s in sizes):
            raise Unknown('not in the table')
        at = [f"{self.get(o[1], type_)}, {o[2]}" for o, type_ in ((to, 'u32'), (of, 'u64'))]
        return [f'S.copy({", ".join(at)}, {bytes_}, M, {i.line})']

    def op_shfl(self, i, masked):
        if i.op[1] != 'sync' or i.op[2] not in ('idx', 'bfly', 'up', 'down') or i.op[3] != 'b32':
            raise Unknown('not in the table')
        d, s, b, c, mask = i.operands
        register, predicate = (d[1], d[2]) if d[0] == 'pair' else (d, None)
        lines = [f"T = S.shuffle('{i.op[2]}', {self.get(s, 'b32')}, {self.get(b, 'u32')}, {self.get(c, 'u32')}, "
                 f"{self.get(mask, 'u32')}, M, {i.line})", self.put(register, 'T[0]', 'b32', masked)]
        return lines + ([self.put(predicate, 'T[1]', 'pred', masked)] if predicate else [])

    def op_vote(self, i, masked):
        """ "vote.sync": a bit for each lane of the mask."""
        if i.op[1:] != ['sync', 'ballot', 'b32']:
            raise Unknown('not in the table')
        d, p, mask = i.operands
        value = f"S.ballot({self.get(p, 'pred')}, {self.get(mask, 'u32')}, M, {i.line})"
        return [self.put(d, value, 'b32', masked)]

    def op_ldmatrix(self, i, masked):
        words = [w for w in i.op[1:] if w != 'trans']
        if words != ['sync', 'aligned', 'm8n8', 'x4', 'shared', 'b16']:
            raise Unknown('not in the table')
        d, address = i.operands
        lines = [f"T = S.load_matrix({self.get(address[1], 'u32')}, {address[2]}, {'trans' in i.op}, M, {i.line})"]
        return lines + [self.put(o, f'T[{n}]', 'b32', masked) for n, o in enumerate(d[1])]

    def op_mma(self, i, masked):
        if '.'.join(i.op[1:]) != 'sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32':
            raise Unknown('not in the table')
        d, a, b, c = i.operands
        of = [', '.join(self.get(o, t) for o in v[1]) for v, t in ((a, 'b32'), (b, 'b32'), (c, 'f32'))]
        lines = [f'T = S.mma(({of[0]}), ({of[1]}), ({of[2]}), M, {i.line})']
        return lines + [self.put(o, f'T[{n}]', 'f32', masked) for n, o in enumerate(d[1])]

    def members(self, i):
        """Returns the mask of lanes that an instruction of TOGETHER or a bar.warp names, as a source of numbers."""
        return self.get(i.operands[-1], 'u32') if i.op[0] in ('shfl', 'vote') else self.constant('-1', 'u32')
