-- A byte-level language model whose MLPs are units: layers with code of their own, in gated_mlp.c for CPUs and
-- gated_mlp.cu for GPUs. With -D own=false the same MLPs are made of Pianola's layers. See ../units.md.
local p = params { layers = 4, width = 64, context = 32, rows = 4, own = true, lr = 3e-3, clip = 0 }

local inner = 128 -- INNER in gated_mlp.c
local rows = p.context * p.rows -- of a microbatch
local between = 4 * rows * inner -- bytes of the columns between the two products
local product = 2 * rows * p.width * inner -- FLOP of one of three

-- hf: the names of parameters in files of weights.
local function mlp(hf)
  return unit {
    source = { "gated_mlp.c", "gated_mlp.cu" },
    parameters = { { "gate_up", p.width, 2 * inner }, { "down", inner, p.width } },
    keeps = "x",
    stash = 2 * between,
    extra = 2 * between,
    work = between,
    flop = { 3 * product + 23 * rows * inner, 3 * product + 29 * rows * inner, 3 * product + 23 * rows * inner },
    hf = hf,
  }
end

local layers = { embedding { width = p.width, hf = "tokens;positions" } }
for i = 0, p.layers - 1 do
  local hf = "block." .. i
  local norm = rmsnorm { hf = hf .. ".norm" }
  if p.own then
    layers[#layers + 1] = residual { norm, mlp(hf) }
  else
    layers[#layers + 1] = residual {
      norm,
      linear { width = 2 * inner, bias = false, hf = "=" .. hf .. ".gate_up" },
      swiglu {},
      linear { width = p.width, bias = false, hf = "=" .. hf .. ".down" },
    }
  end
end
layers[#layers + 1] = linear { width = 256, bias = false, hf = "=head" }
layers[#layers + 1] = cross_entropy {}

return model {
  input = tokens { vocab = 256, context = p.context, rows = p.rows },
  layers = layers,
  optimizer = adamw { lr = p.lr, clip = p.clip },
}
