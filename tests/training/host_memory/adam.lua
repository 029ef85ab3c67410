-- Like integers.lua, with an optimizer that has state.
local p = params { layers = 8, width = 16, rows = 2, precision = "fp32" }
local layers = {}
for i = 1, p.layers do
  layers[#layers + 1] = linear { width = p.width }
  if i < p.layers then layers[#layers + 1] = relu {} end
end
layers[#layers + 1] = mse {}
return model {
  input = integers { features = p.width, rows = p.rows },
  layers = layers,
  optimizer = adamw { lr = 0.01 },
  precision = p.precision,
}
