-- A byte-level Mixtral (Jiang 2024, "Mixtral of Experts", section 2): llama.lua with a mixture of experts in place of
-- each MLP. A token goes to `top` of the experts. Each expert has room for `capacity` times its share of evenly spread
-- tokens. inner: columns of an expert's gate and up; 0: `top` experts have as many together as llama.lua. parallel =
-- "experts": a team divides the sequences, and each member has some of the experts (expert parallelism). With "none",
-- each member has all experts.
local p = params {
  layers = 4, width = 64, heads = 4, kv_heads = 2, experts = 4, top = 2, capacity = 1.25, balance = 0.01, inner = 0,
  context = 64, rows = 4, rope = 10000, lr = 3e-3, decay = 0.0, warmup = 0, schedule = "constant", steps = 0, final = 0.0, clip = 0.0, post_validation = false,
  precision = "fp32",
  parallel = "none",
}
if p.parallel ~= "none" and p.parallel ~= "experts" then
  error("parallel = \"" .. p.parallel .. "\": a team divides the model by \"experts\", or not: \"none\"")
end
local dim, inner = p.width // p.heads, p.inner
if inner == 0 then inner = (p.width * 8 // 3 // p.top + 7) // 8 * 8 end

local function product(width) return linear { width = width, bias = false } end
local layers = { embedding { width = p.width, positions = false } }
for _ = 1, p.layers do
  layers[#layers + 1] = residual {
    rmsnorm {}, product((p.heads + 2 * p.kv_heads) * dim),
    attention { heads = p.heads, kv_heads = p.kv_heads, rope = p.rope }, product(p.width),
  }
  layers[#layers + 1] = residual {
    rmsnorm {},
    moe {
      experts = p.experts, top = p.top, capacity = p.capacity, width = inner, gated = true, balance = p.balance,
      split = p.parallel == "experts" and "experts" or nil,
    },
  }
end
layers[#layers + 1] = rmsnorm {}
layers[#layers + 1] = product(256)
layers[#layers + 1] = cross_entropy {}

return model {
  input = tokens { vocab = 256, context = p.context, rows = p.rows },   -- rows: sequences per microbatch
  layers = layers,
  optimizer = adamw { lr = p.lr, decay = p.decay, warmup = p.warmup, schedule = p.schedule, steps = p.steps,
    final = p.final, clip = p.clip, post_validation = p.post_validation },
  precision = p.precision,   -- or "bf16", with fp32 masters
}
