-- A byte-level Llama (Touvron 2023, "LLaMA: Open and Efficient Foundation Language Models", section 2.2: rmsnorm before
-- each block, swiglu, rotary position embedding; "Llama 2", section 2.2: heads share keys and values), with an output
-- layer of its own unless tied. Qwen2 has bias = true, for queries, keys and values only. Qwen3 has qk_norm = true, an
-- rmsnorm of each head of queries and of keys before rope.
-- inner: columns of gate and up; 0: 8/3 of the width, rounded up to a multiple of 8. dim: columns of a head; 0:
-- width / heads. eps: added to a norm's variance. gate: "silu", or "gelu" for Gemma, which also scales its embedding.
-- rope_factor and the three after it: the scaling of rope.
-- parallel: how a team divides the model: "tensor"; "sequence", which also divides the layers between by rows; or
-- "context" and "ulysses", which divide everything by rows, so that attention exchanges keys and values, or heads.
-- size: "" for the numbers below, or a published model, with the full context that it was trained on (-D context=N for
-- less; for Qwen2.5, the Instruct models' context). `pianola run --weights` reads its weights.
local sizes = {   -- layers, width, heads, heads of keys and values, inner, vocab, base of rope, tied
  ["SmolLM2-135M"] = { 30, 576, 9, 3, 1536, 49152, 100000, true, context = 8192 },
  ["SmolLM2-360M"] = { 32, 960, 15, 5, 2560, 49152, 100000, true, context = 8192 },
  ["SmolLM2-1.7B"] = { 24, 2048, 32, 32, 8192, 49152, 130000, true, context = 8192 },
  ["Llama-2-7B"] = { 32, 4096, 32, 32, 11008, 32000, 10000, false, context = 4096 },
  ["Llama-3-8B"] = { 32, 4096, 32, 8, 14336, 128256, 500000, false, context = 8192 },
  ["Llama-3.2-1B"] = { 16, 2048, 32, 8, 8192, 128256, 500000, true, scaled = 32, context = 131072 },
  ["Llama-3.2-3B"] = { 28, 3072, 24, 8, 8192, 128256, 500000, true, scaled = 32, context = 131072 },
  ["Qwen2.5-0.5B"] = { 24, 896, 14, 2, 4864, 151936, 1000000, true, bias = true, eps = 1e-6, context = 32768 },
  ["Qwen2.5-1.5B"] = { 28, 1536, 12, 2, 8960, 151936, 1000000, true, bias = true, eps = 1e-6, context = 32768 },
  ["Qwen2.5-3B"] = { 36, 2048, 16, 2, 11008, 151936, 1000000, true, bias = true, eps = 1e-6, context = 32768 },
  ["Qwen2.5-7B"] = { 28, 3584, 28, 4, 18944, 152064, 1000000, false, bias = true, eps = 1e-6, context = 32768 },
  ["Qwen3-0.6B"] = { 28, 1024, 16, 8, 3072, 151936, 1000000, true, qk_norm = true, dim = 128, eps = 1e-6, context = 40960 },
  ["Qwen3-1.7B"] = { 28, 2048, 16, 8, 6144, 151936, 1000000, true, qk_norm = true, dim = 128, eps = 1e-6, context = 40960 },
  ["Qwen3-4B"] = { 36, 2560, 32, 8, 9728, 151936, 1000000, true, qk_norm = true, dim = 128, eps = 1e-6, context = 40960 },
  ["Qwen3-8B"] = { 36, 4096, 32, 8, 12288, 151936, 1000000, false, qk_norm = true, dim = 128, eps = 1e-6, context = 40960 },
}
local size = params { size = "" }.size
local s = size == "" and { 4, 64, 4, 2, 0, 256, 10000, false } or sizes[size] or error("size = " .. size .. ": see llama.lua")
local p = params {
  layers = s[1], width = s[2], heads = s[3], kv_heads = s[4], inner = s[5], vocab = s[6], rope = s[7], tied = s[8],
  dim = s.dim or 0, bias = s.bias or false, qk_norm = s.qk_norm or false, eps = s.eps or 1e-5, rope_factor = s.scaled or 0.0,
  rope_low = s.scaled and 1.0 or 0.0, rope_high = s.scaled and 4.0 or 0.0, rope_context = s.scaled and 8192 or 0,
  context = s.context or 64, rows = 4, lr = 3e-3, decay = 0.0, warmup = 0, schedule = "constant", steps = 0, final = 0.0, clip = 0.0, post_validation = false,
  dropout = 0.0, scale = 0.0, gate = "silu",
  precision = "fp32", parallel = "tensor",
}
local dim, inner = p.dim, p.inner
if dim == 0 then dim = p.width // p.heads end
if inner == 0 then inner = (p.width * 8 // 3 + 7) // 8 * 8 end

-- Names in files of weights: Hugging Face's and GGUF's.
local function product(width, split, hf, gguf, bias)
  return linear { width = width, bias = bias or false, split = split, hf = hf, gguf = gguf }
end
local function norm(split, hf, gguf) return rmsnorm { eps = p.eps, split = split, hf = hf, gguf = gguf } end
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

-- llama.cpp permutes the rows of queries and keys in Llama's files, but not in Qwen's.
local turned = not (p.bias or p.qk_norm)
local function head_norms(hf, gguf)
  return headnorm { eps = p.eps, hf = hf .. "self_attn.q_norm;" .. hf .. "self_attn.k_norm",
    gguf = gguf .. "attn_q_norm;" .. gguf .. "attn_k_norm" }
end

-- Appends dropout to a list of layers, if the model has any: after the embedding and each block.
local function dropped(list)
  if p.dropout > 0 then list[#list + 1] = dropout { p = p.dropout, split = way.between } end
  return list
end
local gates = { silu = swiglu, gelu = geglu }
local gate = gates[p.gate] or error("gate = \"" .. p.gate .. "\": it is \"silu\" or \"gelu\"")

local layers = dropped {
  embedding { width = p.width, positions = false, scale = p.scale > 0 and p.scale or nil, split = way.rows,
    hf = "model.embed_tokens", gguf = "token_embd" },
}
for i = 0, p.layers - 1 do
  local hf, gguf = "model.layers." .. i .. ".", "blk." .. i .. "."
  local block = {
    norm(way.between, hf .. "input_layernorm", gguf .. "attn_norm"),
    product((p.heads + 2 * p.kv_heads) * dim, way.columns, hf .. "self_attn.{q,k,v}_proj",
      gguf .. (turned and "attn_{q~" .. p.heads .. ",k~" .. p.kv_heads .. ",v}" or "attn_{q,k,v}"), p.bias),
    attention { heads = p.heads, kv_heads = p.kv_heads, rope = p.rope, rope_factor = p.rope_factor,
      rope_low = p.rope_low, rope_high = p.rope_high, rope_context = p.rope_context, split = way.attention },
    product(p.width, way.rows, hf .. "self_attn.o_proj", gguf .. "attn_output"),
  }
  if p.qk_norm then table.insert(block, 3, head_norms(hf, gguf)) end
  layers[#layers + 1] = residual(dropped(block))
  layers[#layers + 1] = residual(dropped {
    norm(way.between, hf .. "post_attention_layernorm", gguf .. "ffn_norm"),
    product(2 * inner, way.columns, hf .. "mlp.{gate,up}_proj", gguf .. "ffn_{gate,up}"), gate {},
    product(p.width, way.rows, hf .. "mlp.down_proj", gguf .. "ffn_down"),
  })
end
layers[#layers + 1] = norm(way.between, "model.norm", "output_norm")
layers[#layers + 1] = p.tied and unembedding { split = way.columns } or product(p.vocab, way.columns, "lm_head", "output")
layers[#layers + 1] = cross_entropy {}

return model {
  input = tokens { vocab = p.vocab, context = p.context, rows = p.rows },   -- rows: sequences per microbatch
  layers = layers,
  optimizer = adamw { lr = p.lr, decay = p.decay, warmup = p.warmup, schedule = p.schedule, steps = p.steps,
    final = p.final, clip = p.clip, post_validation = p.post_validation },
  precision = p.precision,   -- or "bf16", with fp32 masters
}
