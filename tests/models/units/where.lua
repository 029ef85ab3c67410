-- An embedding whose positions a unit adds, by a file of positions, or, with -D own=false, adds itself.
local p = params { own = true, apart = false, columns = 1, below = 6, type = "i32", side = "positions" }
local where = unit { source = "where.c", parameters = { places = { 6, 8 } }, keeps = "", side = { "gain", p.side }, hf = "" }
local after = { linear { width = 8, bias = false, hf = "inner" }, linear { width = 16, bias = false, hf = "head" }, cross_entropy {} }
local layers = p.own and { embedding { width = 8, positions = false, hf = "table" }, where } or { embedding { width = 8, hf = "table;positions" } }
for _, layer in ipairs(after) do layers[#layers + 1] = layer end

return model {
  input = tokens { vocab = 16, context = 6, rows = 2 },
  inputs = p.own and { positions = { columns = p.columns, type = p.type, below = p.below }, gain = { type = "f32" } } or nil,
  layers = layers,
  cut = p.apart and { 2 } or nil, -- the unit's stage is not the embedding's
  optimizer = sgd { lr = 0.5 },
}
