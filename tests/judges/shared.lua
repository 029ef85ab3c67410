-- Stages whose teams share a norm: members have their own rows between layers that are divided by columns.
local p = params { parts = 2 }
local layers, cut = {}, {}
for i = 1, p.parts do
  if i > 1 then cut[#cut + 1] = #layers end
  layers[#layers + 1] = rmsnorm { split = "rows" }
  layers[#layers + 1] = linear { width = 4, split = "columns" }
  layers[#layers + 1] = linear { width = 4, split = "rows" }
end
layers[#layers + 1] = mse {}
return model { input = integers { features = 4, rows = 2 }, layers = layers, cut = cut, optimizer = sgd { lr = 1 } }
