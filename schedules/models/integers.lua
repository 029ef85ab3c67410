-- Integer-valued data through linear and relu layers: every float sum is exact, so results compare bit for bit.
-- parallel: how a team divides the model: "tensor"; or "sequence", which also divides the layers between by rows.
local p = params { layers = 8, width = 16, rows = 2, lr = 0.015625, clip = 0.0, post_validation = false, precision = "fp32", parallel = "tensor" }

local ways = { tensor = {}, sequence = { between = "rows" } }
if not ways[p.parallel] then error("parallel = \"" .. p.parallel .. "\": a team divides the model by \"tensor\" or \"sequence\"") end

local layers = {}
for i = 1, p.layers do
  local split = i % 2 == 1 and i < p.layers and "columns" or i % 2 == 0 and "rows" or nil   -- a team takes them in pairs
  layers[#layers + 1] = linear { width = p.width, split = split }
  if i < p.layers then layers[#layers + 1] = relu { split = split == "rows" and ways[p.parallel].between or nil } end
end
layers[#layers + 1] = mse {}

return model {
  input = integers { features = p.width, rows = p.rows },
  layers = layers,
  optimizer = sgd { lr = p.lr, clip = p.clip, post_validation = p.post_validation },
  precision = p.precision,
}
