-- Skip connections across stages, as in U-Net (Ronneberger 2015, "U-Net: Convolutional Networks for Biomedical Image
-- Segmentation", figure 1; summed here rather than concatenated): on the way up, stage depth + i reads the output of
-- the stage below, plus the output of stage depth - 1 - i from the way down. So it needs stages = 2 * depth:
--
--   pianola run schedules/graph.lua --model schedules/models/unet.lua -D workers=4 -D depth=2
--
--      input ── 0 ─────────────────────── (+) ── 3 ── loss
--               └── 1 ──────── (+) ── 2 ───┘
--                   └───────────┘                       (depth = 2)
local p = params { depth = 2, width = 16, rows = 4, lr = 0.5 }

local stages = {}
for s = 0, 2 * p.depth - 1 do
  local up = s - p.depth
  local list = { from = s == 0 and "input" or up > 0 and { p.depth - 1 - up, s - 1 } or s - 1, linear { width = p.width }, relu {} }
  if s == 2 * p.depth - 1 then list[#list + 1] = mse {} end
  stages[#stages + 1] = stage(list)
end

return model {
  input = integers { features = p.width, rows = p.rows },
  layers = stages,
  optimizer = sgd { lr = p.lr },
}
