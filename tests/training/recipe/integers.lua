-- integers.lua with any optimizer, and biasless layers that stay diagonal: gradients have the same bits in any order.
local p = params { width = 16, optimizer = "adamw", schedule = "cosine", warmup = 2, steps = 0, final = 0.1, decay = 0.1,
  nesterov = true }
local rate = { lr = 0.015625, schedule = p.schedule, warmup = p.warmup, steps = p.steps, final = p.final }
local make = { sgd = sgd, momentum = momentum, adamw = adamw }
if p.optimizer == "adamw" then rate.decay = p.decay end
if p.optimizer == "momentum" then rate.nesterov = p.nesterov end

local layers = {}
for i = 1, 8 do
  layers[#layers + 1] = linear { width = p.width, split = i == 8 and "rows" or i % 2 == 1 and "columns" or "rows" }
  if i < 8 then layers[#layers + 1] = relu {} end
end
layers[#layers + 1] = mse {}

return model { input = integers { features = p.width, rows = 2 }, layers = layers, optimizer = make[p.optimizer](rate) }
