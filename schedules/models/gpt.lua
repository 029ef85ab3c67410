-- A byte-level GPT (Radford 2019, "Language Models are Unsupervised Multitask Learners", section 2.3: pre-norm blocks).
-- tied: the output layer is the embedding's table, as in GPT-2, instead of weights of its own.
local p = params { layers = 4, width = 64, heads = 4, context = 64, rows = 4, lr = 3e-3, precision = "fp32", tied = false }

local layers = { embedding { width = p.width } }
for _ = 1, p.layers do
  layers[#layers + 1] = residual { layernorm {}, linear { width = 3 * p.width }, attention { heads = p.heads }, linear { width = p.width } }
  layers[#layers + 1] = residual { layernorm {}, linear { width = 4 * p.width }, gelu {}, linear { width = p.width } }
end
layers[#layers + 1] = layernorm {}
layers[#layers + 1] = p.tied and unembedding {} or linear { width = 256 }
layers[#layers + 1] = cross_entropy {}

return model {
  input = tokens { vocab = 256, context = p.context, rows = p.rows },   -- rows sequences per microbatch
  layers = layers,
  optimizer = adamw { lr = p.lr },
  precision = p.precision,   -- or "bf16", with fp32 masters
}
