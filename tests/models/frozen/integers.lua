-- integers.lua with every third linear layer frozen, on which every sum is exact in any order.
local p = params { frozen = true }
local layers = {}
for i = 1, 8 do
  local cold = p.frozen and i % 3 == 1
  layers[#layers + 1] = linear { width = 8, frozen = cold, data = cold and "integers.safetensors" or nil, hf = "l" .. i }
  if i < 8 then layers[#layers + 1] = relu {} end
end
layers[#layers + 1] = mse {}
return model { input = integers { features = 8, rows = 2 }, layers = layers, optimizer = sgd { lr = 0.015625 } }
