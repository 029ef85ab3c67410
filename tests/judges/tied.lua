-- A model with few exchanges whose embedding and output layer share a token table.
local p = params { layers = 2 }
local layers = { embedding { width = 4, positions = false, split = "rows" } }
for _ = 2, p.layers do layers[#layers + 1] = layernorm {} end
layers[#layers + 1] = unembedding { split = "columns" }
layers[#layers + 1] = cross_entropy {}
return model { input = tokens { vocab = 8, context = 2, rows = 1 }, layers = layers, optimizer = sgd { lr = 1 } }
