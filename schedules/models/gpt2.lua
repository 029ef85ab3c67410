-- GPT-2 (Radford 2019, "Language Models are Unsupervised Multitask Learners", section 2.3 and table 2) in its four sizes:
--
--   pianola check schedules/1f1b.lua --model schedules/models/gpt2.lua -D size=774M
--
-- As published: learned positions, pre-norm blocks with biases, gelu (its tanh form), a layernorm after the last block,
-- and one token table for the embedding and, transposed, for the output. Not as published: no dropout; linear layers
-- start with a standard deviation of 1 / sqrt(columns of their input) instead of 0.02, which only the table has; and
-- vocab is 50257 rounded up to a multiple of 128, for faster products: the table has 47 extra rows, for tokens that no
-- text contains.
-- -D vocab=50257 gives the published numbers of parameters: 124,439,808, 354,823,168, 774,030,080 and 1,557,611,200,
-- and reads published weights (--weights).
-- -D tied=false gives it an output layer of its own. Teams divide the table by tokens (-D tensor=4).
-- parallel: how they divide the layers: "tensor"; or "sequence", which also divides the layers between by rows.
-- Rows and the optimizer's numbers are the defaults of llm.c's train_gpt2.cu, except for its -D clip=1.
local p = params {
  size = "124M", context = 1024, rows = 4, vocab = 50304, precision = "fp32", tied = true, parallel = "tensor",
  lr = 3e-4, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, decay = 0.0,
  warmup = 0, schedule = "constant", steps = 0, final = 0.0, clip = 0.0, post_validation = false, dropout = 0.0,
  norm_eps = 1e-5,   -- added to a norm's variance; eps is the optimizer's
}
local sizes = {   -- layers, width, heads
  ["124M"] = { 12, 768, 12 }, ["350M"] = { 24, 1024, 16 }, ["774M"] = { 36, 1280, 20 }, ["1558M"] = { 48, 1600, 25 },
}
local size = sizes[p.size] or error("size = " .. p.size .. ": the sizes of GPT-2 are 124M, 350M, 774M and 1558M")
local own = params { layers = size[1], width = size[2], heads = size[3] }
local n, width, heads = own.layers, own.width, own.heads

local ways = { tensor = {}, sequence = { between = "rows" } }
if not ways[p.parallel] then error("parallel = \"" .. p.parallel .. "\": a team divides the model by \"tensor\" or \"sequence\"") end
local rows = ways[p.parallel].between

-- Names in files of weights: Hugging Face's, which store products as here, and GGUF's.
local function product(w, split, hf, gguf) return linear { width = w, split = split, hf = "=" .. hf, gguf = gguf } end
local function norm(hf, gguf) return layernorm { eps = p.norm_eps, split = rows, hf = hf, gguf = gguf } end

-- Appends dropout to a list of layers, if the model has any: after the embedding and each block.
local function dropped(list)
  if p.dropout > 0 then list[#list + 1] = dropout { p = p.dropout, split = rows } end
  return list
end

local layers = dropped {
  embedding { width = width, split = "rows", hf = "transformer.wte;transformer.wpe", gguf = "token_embd;position_embd" },
}
for i = 0, n - 1 do
  local hf, gguf = "transformer.h." .. i .. ".", "blk." .. i .. "."
  layers[#layers + 1] = residual(dropped {
    norm(hf .. "ln_1", gguf .. "attn_norm"), product(3 * width, "columns", hf .. "attn.c_attn", gguf .. "attn_qkv"),
    attention { heads = heads }, product(width, "rows", hf .. "attn.c_proj", gguf .. "attn_output"),
  })
  layers[#layers + 1] = residual(dropped {
    norm(hf .. "ln_2", gguf .. "ffn_norm"), product(4 * width, "columns", hf .. "mlp.c_fc", gguf .. "ffn_up"), gelu {},
    product(width, "rows", hf .. "mlp.c_proj", gguf .. "ffn_down"),
  })
end
layers[#layers + 1] = norm("transformer.ln_f", "output_norm")
layers[#layers + 1] = p.tied and unembedding { split = "columns" }
  or linear { width = p.vocab, bias = false, split = "columns", hf = "lm_head", gguf = "output" }
layers[#layers + 1] = cross_entropy {}

return model {
  input = tokens { vocab = p.vocab, context = p.context, rows = p.rows },
  layers = layers,
  optimizer = adamw { lr = p.lr, beta1 = p.beta1, beta2 = p.beta2, eps = p.eps, decay = p.decay,
    warmup = p.warmup, schedule = p.schedule, steps = p.steps,
    final = p.final, clip = p.clip, post_validation = p.post_validation },
  precision = p.precision,
}
