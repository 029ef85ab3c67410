-- A chain of linear and relu layers on integers, as many linear ones in each stage. The more layers, the smaller the steps
-- that still converge. A team divides them in pairs: the columns of one, and of the next one the rows that these meet.
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
