-- GPT-2 (Radford 2019, "Language Models are Unsupervised Multitask Learners", section 2.3 and table 2) in its four sizes:
--
--   pianola check schedules/1f1b.lua --model schedules/models/gpt2.lua -D size=774M
--
-- As published: learned positions, pre-norm blocks with biases, gelu (its tanh form), a layernorm after the last block,
-- and one token table for the embedding and, transposed, for the output. Not as published: no dropout; linear layers
-- start with a deviation of 1 / sqrt(columns of their input) instead of 0.02, the table's; and vocab is 50257 rounded up
-- to a multiple of 128, as the products like it: 47 more rows of the table, for tokens that no text has. -D vocab=50257
-- gives the published numbers of parameters: 124,439,808, 354,823,168, 774,030,080 and 1,557,611,200.
-- -D tied=false gives it an output layer of its own. Teams divide the table by tokens (-D tensor=4).
-- parallel: how they divide the layers: "tensor"; or "sequence", which also divides what lies between by rows.
-- Rows and the optimizer's numbers are the defaults of llm.c's train_gpt2.cu, which clips gradients too.
local p = params {
  size = "124M", context = 1024, rows = 4, vocab = 50304, precision = "fp32", tied = true, parallel = "tensor",
  lr = 3e-4, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, decay = 0.0,
  warmup = 0, schedule = "constant", steps = 0, final = 0.0,
}
local sizes = {   -- layers, width, heads
  ["124M"] = { 12, 768, 12 }, ["350M"] = { 24, 1024, 16 }, ["774M"] = { 36, 1280, 20 }, ["1558M"] = { 48, 1600, 25 },
}
local size = sizes[p.size] or error("size = " .. p.size .. ": the sizes of GPT-2 are 124M, 350M, 774M and 1558M")
local n, width, heads = size[1], size[2], size[3]

local ways = { tensor = {}, sequence = { between = "rows" } }
if not ways[p.parallel] then error("parallel = \"" .. p.parallel .. "\": a team divides the model by \"tensor\" or \"sequence\"") end
local rows = ways[p.parallel].between

local layers = { embedding { width = width, split = "rows" } }
for _ = 1, n do
  layers[#layers + 1] = residual { layernorm { split = rows }, linear { width = 3 * width, split = "columns" },
    attention { heads = heads }, linear { width = width, split = "rows" } }
  layers[#layers + 1] = residual { layernorm { split = rows }, linear { width = 4 * width, split = "columns" }, gelu {},
    linear { width = width, split = "rows" } }
end
layers[#layers + 1] = layernorm { split = rows }
layers[#layers + 1] = p.tied and unembedding { split = "columns" } or linear { width = p.vocab, bias = false, split = "columns" }
layers[#layers + 1] = cross_entropy {}

return model {
  input = tokens { vocab = p.vocab, context = p.context, rows = p.rows },
  layers = layers,
  optimizer = adamw { lr = p.lr, beta1 = p.beta1, beta2 = p.beta2, eps = p.eps, decay = p.decay,
    warmup = p.warmup, schedule = p.schedule, steps = p.steps,
    final = p.final },
  precision = p.precision,
}
