-- Equal chunks: each has `blocks` pairs of linear layers, which a team divides with one all-reduce in the forward and
-- one in the backward. The first chunk also widens the input, so that its backward exchanges as much as the others',
-- and the last narrows its output to one column for the loss. Both add one or two hundred-thousandths of a chunk's
-- time, in one part.
local p = params { stages = 8, blocks = 2, width = 49152 }
local layers, cut = { linear { width = p.width } }, {}
for s = 0, p.stages - 1 do
  if s > 0 then cut[s] = #layers + 1 end
  for _ = 1, p.blocks do
    layers[#layers + 1] = linear { width = p.width, split = "columns", bias = false }
    layers[#layers + 1] = linear { width = p.width, split = "rows", bias = false }
  end
end
layers[#layers + 1] = linear { width = 1 }
layers[#layers + 1] = mse {}
return model { input = integers { features = 1, rows = 2 }, layers = layers, cut = cut, optimizer = sgd { lr = 0.5 } }
