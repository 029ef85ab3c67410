-- gpt.lua as a graph, in which attention is a stage of its own, without weights: for schedules that compute it on other
-- ranks than the layers around it, such as helixpipe.lua. A transformer layer is four stages, so it needs
-- stages = 4 * layers + 1:
--
--   pianola run schedules/helixpipe.lua --model schedules/models/gpt_stages.lua
--
--      embedding ──┬── queries, keys, values ── attention ── output ── (+) ── MLP ──┬── …
--                  └───────────────────────────────────────────────────┘            └── …
local p = params { layers = 4, width = 64, heads = 4, context = 64, rows = 4, precision = "fp32",
  lr = 3e-3, decay = 0.0, warmup = 0, schedule = "constant", steps = 0, final = 0.0, clip = 0.0, post_validation = false }

local stages = { stage { from = "input", embedding { width = p.width, split = "rows" } } }
for l = 1, p.layers do
  local x = #stages - 1   -- the stage whose output this layer adds to
  stages[#stages + 1] = stage { from = x, layernorm {}, linear { width = 3 * p.width, split = "columns" } }
  stages[#stages + 1] = stage { from = x + 1, attention { heads = p.heads } }
  stages[#stages + 1] = stage { from = x + 2, linear { width = p.width, split = "rows" } }
  local mlp = { from = { x, x + 3 }, residual { layernorm {}, linear { width = 4 * p.width, split = "columns" }, gelu {},
    linear { width = p.width, split = "rows" } } }
  if l == p.layers then
    for _, layer in ipairs { layernorm {}, linear { width = 256, split = "columns" }, cross_entropy {} } do mlp[#mlp + 1] = layer end
  end
  stages[#stages + 1] = stage(mlp)
end

return model {
  input = tokens { vocab = 256, context = p.context, rows = p.rows },   -- rows: sequences per microbatch
  layers = stages,
  optimizer = adamw { lr = p.lr, decay = p.decay, warmup = p.warmup, schedule = p.schedule, steps = p.steps,
    final = p.final, clip = p.clip, post_validation = p.post_validation },
  precision = p.precision,   -- or "bf16", with fp32 masters
}
