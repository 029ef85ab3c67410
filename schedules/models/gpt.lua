-- A byte-level GPT (Radford 2019, "Language Models are Unsupervised Multitask Learners", section 2.3: pre-norm blocks).
-- parallel: how a team divides the model: "tensor"; "sequence", which also divides the layers between by rows; or
-- "context" and "ulysses", which divide everything by rows, so that attention exchanges keys and values, or heads.
-- tied: the output layer uses the embedding's table, as in GPT-2, instead of its own weights.
local p = params { layers = 4, width = 64, heads = 4, context = 64, rows = 4, precision = "fp32", tied = false,
  lr = 3e-3, decay = 0.0, warmup = 0, schedule = "constant", steps = 0, final = 0.0, clip = 0.0, post_validation = false, dropout = 0.0,
  parallel = "tensor" }

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

-- Appends dropout to a list of layers, if the model has any (GPT-2 has it after the embedding and each block).
local function dropped(list)
  if p.dropout > 0 then list[#list + 1] = dropout { p = p.dropout, split = way.between } end
  return list
end
local layers = dropped { embedding { width = p.width, split = way.rows } }
for _ = 1, p.layers do
  layers[#layers + 1] = residual(dropped { layernorm { split = way.between }, linear { width = 3 * p.width, split = way.columns },
    attention { heads = p.heads, split = way.attention }, linear { width = p.width, split = way.rows } })
  layers[#layers + 1] = residual(dropped { layernorm { split = way.between }, linear { width = 4 * p.width, split = way.columns },
    gelu {}, linear { width = p.width, split = way.rows } })
end
layers[#layers + 1] = layernorm { split = way.between }
layers[#layers + 1] = p.tied and unembedding { split = way.columns } or linear { width = 256, split = way.columns }
layers[#layers + 1] = cross_entropy {}

return model {
  input = tokens { vocab = 256, context = p.context, rows = p.rows },   -- rows: sequences per microbatch
  layers = layers,
  optimizer = adamw { lr = p.lr, decay = p.decay, warmup = p.warmup, schedule = p.schedule, steps = p.steps,
    final = p.final, clip = p.clip, post_validation = p.post_validation },
  precision = p.precision,   -- or "bf16", with fp32 masters
}
