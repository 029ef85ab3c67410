-- Integer-valued data through linear and relu layers: every float sum is exact, so results compare bit for bit.
local p = params { layers = 8, width = 16, rows = 2, lr = 0.015625, precision = "fp32" }

local layers = {}
for i = 1, p.layers do
  layers[#layers + 1] = linear { width = p.width }
  if i < p.layers then layers[#layers + 1] = relu {} end
end
layers[#layers + 1] = mse {}

return model {
  input = integers { features = p.width, rows = p.rows },
  layers = layers,
  optimizer = sgd { lr = p.lr },
  precision = p.precision,
}
