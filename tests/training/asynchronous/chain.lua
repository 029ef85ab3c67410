-- A chain of linear and relu layers on integers, with the same number of linear layers in each stage. With more layers,
-- only smaller steps converge. A team divides the layers in pairs: one by columns, the next by the matching rows.
local p = params { stages = 4, layers = 1, features = 2, rows = 1, lr = 13, adam = 0 }

local layers, cut = {}, {}
for i = 1, p.stages * p.layers do
  local split = i % 2 == 0 and "rows" or i < p.stages * p.layers and "columns" or nil
  layers[#layers + 1] = linear { width = p.features, split = split }
  if i < p.stages * p.layers then layers[#layers + 1] = relu {} end
  if i > 1 and (i - 1) % p.layers == 0 then cut[#cut + 1] = 2 * i - 2 end
end
layers[#layers + 1] = mse {}

return model {
  input = integers { features = p.features, rows = p.rows },
  layers = layers, cut = cut,
  optimizer = (p.adam > 0 and adamw or sgd) { lr = 2.0 ^ -p.lr },
}
