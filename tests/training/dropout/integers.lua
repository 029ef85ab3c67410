-- Integer-valued data with dropout of a half, which doubles the rest: every float sum is exact, so results compare bit
-- for bit. rows: a team's members have rows of their own between its products.
local p = params { layers = 6, width = 16, rows = 2, p = 0.5, parallel = "tensor" }
local layers = {}
for i = 1, p.layers do
  layers[#layers + 1] = linear { width = p.width, split = i % 2 == 1 and i < p.layers and "columns" or i % 2 == 0 and "rows" or nil }
  if i % 2 == 0 and i < p.layers then layers[#layers + 1] = dropout { p = p.p, split = p.parallel == "sequence" and "rows" or nil } end
  if i < p.layers then layers[#layers + 1] = relu {} end
end
layers[#layers + 1] = mse {}
return model { input = integers { features = p.width, rows = p.rows }, layers = layers, optimizer = sgd { lr = 1 / 128 } }
