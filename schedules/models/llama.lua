-- A byte-level Llama (Touvron 2023, "LLaMA: Open and Efficient Foundation Language Models", section 2.2: rmsnorm before
-- each block, swiglu, rotary position embedding; "Llama 2", section 2.2: heads share keys and values). No biases, and an
-- output layer of its own. inner: the columns of gate and up, 8/3 of the width in multiples of 8 where it is 0.
-- parallel: how a team divides the model: "tensor"; "sequence", which also divides what lies between by rows; or all of it
-- by rows, for which attention exchanges keys and values ("context") or heads ("ulysses").
local p = params {
  layers = 4, width = 64, heads = 4, kv_heads = 2, inner = 0, context = 64, rows = 4, rope = 10000,
  lr = 3e-3, precision = "fp32", parallel = "tensor",
}
local dim, inner = p.width // p.heads, p.inner
if inner == 0 then inner = (p.width * 8 // 3 + 7) // 8 * 8 end

local function product(width, split) return linear { width = width, bias = false, split = split } end
local ways = {
  tensor = { columns = "columns", rows = "rows" },
  sequence = { columns = "columns", rows = "rows", between = "rows" },
  context = { between = "rows", attention = "rows" },
  ulysses = { between = "rows", attention = "heads" },
}
local way = ways[p.parallel]
if not way then
  error("parallel = \"" .. p.parallel .. "\": a team divides the model by \"tensor\", \"sequence\", \"context\" or \"ulysses\"")
end

local layers = { embedding { width = p.width, positions = false, split = way.rows } }
for _ = 1, p.layers do
  layers[#layers + 1] = residual {
    rmsnorm { split = way.between }, product((p.heads + 2 * p.kv_heads) * dim, way.columns),
    attention { heads = p.heads, kv_heads = p.kv_heads, rope = p.rope, split = way.attention },
    product(p.width, way.rows),
  }
  layers[#layers + 1] = residual {
    rmsnorm { split = way.between }, product(2 * inner, way.columns), swiglu {}, product(p.width, way.rows),
  }
end
layers[#layers + 1] = rmsnorm { split = way.between }
layers[#layers + 1] = product(256, way.columns)
layers[#layers + 1] = cross_entropy {}

return model {
  input = tokens { vocab = 256, context = p.context, rows = p.rows },   -- rows sequences per microbatch
  layers = layers,
  optimizer = adamw { lr = p.lr },
  precision = p.precision,   -- or "bf16", with fp32 masters
}
