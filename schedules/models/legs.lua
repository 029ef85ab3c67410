-- Two encoders that join, as in CLIP (Radford 2021, "Learning Transferable Visual Models From Natural Language Supervision",
-- section 2.3): legs of `depth` stages each read the same batch, and the last stage reads the sum of both. So it needs
-- stages = 2 * depth + 1:
--
--   pianola run schedules/graph.lua --model schedules/models/legs.lua -D workers=3
--
--      input ── 0 ── … ── depth - 1 ────────────┐
--        └───── depth ── … ── 2 * depth - 1 ── (+) ── 2 * depth ── loss
local p = params { depth = 1, width = 16, rows = 4, lr = 0.5 }

local stages = {}
for leg = 0, 1 do
  for i = 0, p.depth - 1 do
    stages[#stages + 1] = stage { from = i == 0 and "input" or leg * p.depth + i - 1, linear { width = p.width }, relu {} }
  end
end
stages[#stages + 1] = stage { from = { p.depth - 1, 2 * p.depth - 1 }, linear { width = p.width }, relu {}, mse {} }

return model {
  input = integers { features = p.width, rows = p.rows },
  layers = stages,
  optimizer = sgd { lr = p.lr },
}
