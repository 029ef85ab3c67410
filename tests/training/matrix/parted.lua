-- A model whose split layers can be cut from one another. normed: with norms of heads before attention.
local p = params { cut = { 3, 4 }, normed = false }
local layers = { embedding { width = 16 }, linear { width = 48, split = "columns" } }
if p.normed then layers[#layers + 1] = headnorm { eps = 0.1 } end
for _, layer in ipairs { attention { heads = 4 }, linear { width = 16, split = "rows" }, linear { width = 48, split = "columns" },
  relu {}, swiglu {}, linear { width = 256, split = "rows" }, cross_entropy {} } do layers[#layers + 1] = layer end
return model {
  input = tokens { vocab = 256, context = 8, rows = 2 }, layers = layers, optimizer = adamw { lr = 3e-3 }, cut = p.cut,
}
