"""Writes a model's folder: model.lua, the units' C files and libraries, and the weights."""

import dataclasses
import os
import pathlib
import re
import shutil
import tempfile

import torch
from safetensors.torch import save_file

from .build import DTYPES
from .cut import Cut


@dataclasses.dataclass
class Export:
    """The contents of the folder. inputs: the model's, without the tokens. frozen: the token table's fields in Lua
    if it is not trained. layers: for each layer, a unit's name or another layer as Lua text, and the layer's name in
    files of weights, or None. known: what known_values returns."""

    title: str
    machine: str
    gpu: bool
    rows: int
    context: int
    inputs: list
    cut: Cut
    frozen: str
    units: list
    layers: list
    weights: dict
    known: dict

    @property
    def ending(self):
        return ".cu" if self.gpu else ".c"


def frozen_fields(parameter):
    """Returns the fields, in Lua, of Pianola's own layer with a parameter: none if it is trained."""
    return "" if parameter.requires_grad else ', frozen = true, data = "model.safetensors"'


def braced(items):
    return "{" + ", ".join(str(i) for i in items) + "}"


# ---- a unit's C file ----


def c_inputs(graph):
    rows = []
    for space, offset, t in graph.inputs:
        shape = [braced(list(v) or [0]) for v in (t.shape, t.stride())]
        rows.append(braced([at(space, offset), DTYPES[t.dtype], t.dim(), *shape]))
    return c_places("aoti_input", f"{graph.name}_inputs", rows)


def c_places(kind, name, rows):
    text = "".join(f"    {row},\n" for row in rows)
    return f"static const struct {kind} {name}[] = {{\n{text}}};\n"


def at(space, offset):
    return braced(["AOTI_" + space.upper(), offset])


def c_graph(graph, unit, export):
    name = graph.name
    external = 'extern "C" ' if export.gpu else ""
    tape = [braced([at(space, offset), size, spare]) for space, offset, size, spare in graph.tape]
    fields = [
        f'.name = "{name}"',
        f'.machine = "{export.machine}"',
        f".run = {name}_graph",
        f".constants = {unit}_constants",
        f".code = &{unit}_code" if export.gpu else "",
        f".input = {name}_inputs",
        f".tape = {name}_tape" if tape else "",
        f".output = {name}_outputs",
        f".inputs = {len(graph.inputs)}",
        f".outputs = {len(graph.outputs)}",
        f".allocations = {len(tape)}",
        f".tensors = {graph.tensors}",
        f".pool = {graph.pool}",
        f".random = {graph.random}" if graph.randoms else "",
        f".randoms = {graph.randoms}" if graph.randoms else "",
    ]
    return (
        f"\n{external}aoti_function {name}_graph;\n"
        + c_inputs(graph)
        + (c_places("aoti_allocation", f"{name}_tape", tape) if tape else "")
        + f"static const int32_t {name}_outputs[] = {braced(graph.outputs)};\n"
        f"static const struct aoti_graph {name}_plan = {{\n"
        + "".join(f"    {f},\n" for f in fields if f)
        + "};\n"
    )


def c_function(name, plan, gpu):
    call = "const struct pianola_unit_call *call"
    if gpu:
        return f'\nextern "C" void {name}_cuda({call}) {{ aoti_run_cuda({plan}, call); }}\n'
    return f"\nvoid {name}({call});\nvoid {name}({call}) {{ aoti_run({plan}, call); }}\n"


def c_file(unit, export):
    external = 'extern "C" ' if export.gpu else "extern "
    text = (
        f"/* Unit {unit.name}, compiled by PyTorch {torch.__version__} for {export.machine}: the plans of its"
        " graphs' memory, and its functions.\n * Written by pianola-export. */\n#include"
        f" <pianola/aoti.h>\n\n{external}const char {unit.name}_constants[];\n"
    )
    if export.gpu:
        text += f"{external}struct aoti_code {unit.name}_code;\n"
    text += "".join(c_graph(g, unit.name, export) for g in unit.graphs.values())
    plans = {g.name: f"&{g.name}_plan" for op, g in unit.graphs.items() if op != "validate"}
    if "validate" in unit.graphs:
        plans[f"{unit.name}_forward"] = f"call->seed ? &{unit.name}_forward_plan : &{unit.name}_validate_plan"
    return text + "".join(c_function(*p, export.gpu) for p in plans.items())


# ---- model.lua ----


def lua_unit(unit, ending):
    parameters = [
        f'    {{ "{name}", {", ".join(map(str, p.shape))} }},\n' for name, p in unit.parameters.items()
    ]
    # For a training that starts without --weights: scales of norms are near 1.
    ones = [
        f'["{name}"] = "ones"'
        for name, p in unit.parameters.items()
        if p.dim() == 1 and float(p.detach().mean()) > 0.5
    ]
    side = ", ".join(f'"{n}"' for n in unit.side)
    three = lambda values: "{ " + ", ".join(f"{v:.0f}" for v in values) + " }"
    lines = [
        f'  source = "units/{unit.name}{ending}",',
        f'  libraries = {{ {{ "units/{unit.name}.so", sha256 = "{unit.sha256}" }} }},',
        f"  in_width = {unit.columns_in}, width = {unit.columns_out}, in_rows = {unit.rows},",
        *([f"  parameters = {{\n{''.join(parameters)}  }},"] if parameters else []),
        *([f"  init = {{ {', '.join(ones)} }},"] if ones else []),
        *(
            [
                f"  frozen = {{ {', '.join(map(repr, unit.frozen))} }}, data = \"model.safetensors\","
                .replace("'", '"')
            ]
            if unit.frozen
            else []
        ),
        f'  keeps = "{unit.keeps}", stash = {unit.stash}, extra = {unit.extra}, work = {three(unit.work)},',
        f"  flop = {three(unit.flop)},",
        *([f"  side = {{ {side} }},"] if side else []),
    ]
    body = "\n".join("  " + line for line in "\n".join(lines).split("\n"))
    return f"local function {unit.name}(hf)\n  return unit {{\n{body}\n    hf = hf,\n  }}\nend\n"


def lua_layers(layers):
    """Returns the layers as Lua, with a loop where a unit is repeated with numbered names."""
    text, i = [], 0
    while i < len(layers):
        name, where = layers[i]
        n = 1
        found = re.fullmatch(r"(.*\.)(\d+)", where or "")
        while found and i + n < len(layers) and layers[i + n] == (name, f"{found[1]}{int(found[2]) + n}"):
            n += 1
        if n > 1:
            first = int(found[2])
            text.append(f'for i = {first}, {first + n - 1} do\n  add({name}("{found[1]}" .. i))\nend\n')
        else:
            text.append(f'add({name}("{where}"))\n' if where is not None else f"add({name})\n")
        i += n
    return "".join(text)


def lua_inputs(inputs):
    kinds = [
        f'["{v.side}"] = {{ columns = {v.columns}, '
        + (f'type = "i32", below = {v.below} }}' if v.below else 'type = "f32" }')
        for v in inputs
    ]
    return f"inputs = {{ {', '.join(kinds)} }},\n  " if inputs else ""


def model_lua(export):
    rows, context = export.rows, export.context
    machine = f"GPUs ({export.machine})" if export.gpu else f"{export.machine} processors"
    return f"""-- {export.title}, exported from PyTorch {torch.__version__} for {machine} by pianola-export.
-- A microbatch has {rows} sequences of {context} tokens. See schedules/pytorch.md.
local p = params {{ lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, decay = 0, clip = 0, warmup = 0, labels = false }}

{chr(10).join(lua_unit(u, export.ending) for u in export.units)}
local layers = {{}}
local function add(layer) layers[#layers + 1] = layer end
add(embedding {{ width = {export.cut.width}, positions = false, hf = "{export.cut.table.removesuffix('.weight')}"{export.frozen} }})
{lua_layers(export.layers)}add(cross_entropy {{}})

return model {{
  input = tokens {{ vocab = {export.cut.vocab}, context = {context}, rows = {rows}, labels = p.labels }},
  {lua_inputs(export.inputs)}layers = layers,
  check = {{ values = "check.safetensors", weights = "model.safetensors" }},
  optimizer = adamw {{
    lr = p.lr, beta1 = p.beta1, beta2 = p.beta2, eps = p.eps, decay = p.decay, clip = p.clip, warmup = p.warmup,
  }},
}}
"""


# ---- the folder ----


def write(export, folder):
    """Writes the folder. Its files replace an earlier export's once all are written, the model script
    last."""
    folder = pathlib.Path(folder)
    (folder / "units").mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".export-", dir=folder) as new:
        new = pathlib.Path(new)
        names = []
        for unit in export.units:
            (new / f"{unit.name}{export.ending}").write_text(c_file(unit, export))
            shutil.copy(unit.library, new / f"{unit.name}.so")
            names += [f"units/{unit.name}{export.ending}", f"units/{unit.name}.so"]
        save_file(export.weights, new / "model.safetensors", metadata={"format": "pt"})
        save_file(export.known, new / "check.safetensors", metadata={"format": "pt"})
        for name in ("model", "check"):
            os.chmod(new / f"{name}.safetensors", 0o644)
        (new / "model.lua").write_text(model_lua(export))
        for name in [*names, "model.safetensors", "check.safetensors", "model.lua"]:
            os.replace(new / pathlib.Path(name).name, folder / name)
