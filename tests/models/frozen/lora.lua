-- Adapters of low rank and a unit, which are trained, between layers that are frozen: an embedding, norms, linear layers
-- with a bias, and the output. tied: the output is the embedding's table. alone: the first and the last stage have frozen layers only.
-- unit = false: without the unit, which has no code for GPUs.
local p = params { frozen = true, tied = false, alone = false, unit = true, data = "lora.safetensors", lr = 0.02, precision = "fp32" }

local function cold(fields)
  if p.frozen then fields.frozen, fields.data = true, p.data end
  return fields
end

local layers = { embedding(cold { width = 8, hf = "table;places" }) }
for i = 0, 3 do
  layers[#layers + 1] = residual {
    rmsnorm(cold { hf = "norm." .. i }),
    linear { width = 4, bias = false, hf = "down." .. i },
    linear { width = 8, bias = false, hf = "up." .. i },
  }
  layers[#layers + 1] = linear(cold { width = 8, hf = "middle." .. i })
end
if p.unit then layers[#layers + 1] = unit { source = "gain.c", parameters = { gain = { 8 } }, hf = "last" } end
layers[#layers + 1] = p.tied and unembedding {} or linear(cold { width = 16, bias = false, hf = "head" })
layers[#layers + 1] = cross_entropy {}

return model {
  input = tokens { vocab = 16, context = 6, rows = 2 },
  layers = layers,
  cut = p.alone and { 2, 6, 11 } or nil,
  optimizer = sgd { lr = p.lr },
  precision = p.precision,
}
