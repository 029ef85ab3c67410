-- A model whose parameters have the names of somebody else's, with units that each freeze a scale, and a tied table.
local p = params { frozen = true }

local function block(i)
  return unit {
    source = "fine.c",
    parameters = { { "norm.scale", 8 }, { "norm.shift", 8 } },
    stash = 4 * 12 * 8, extra = 4 * 12 * 8, work = 4 * 12 * 8,
    data = "named.safetensors",
    frozen = p.frozen and { "norm.scale" } or nil,
    hf = "model.layers." .. i,
  }
end

return model {
  input = tokens { vocab = 16, context = 4, rows = 3 },
  layers = {
    embedding { width = 8, hf = "model.embed;model.position" },
    block(0),
    linear { width = 8, hf = "proj" },
    block(1),
    unit { source = "fine.c", parameters = { scale = { 8 }, shift = { 8 } }, stash = 4 * 12 * 8, extra = 4 * 12 * 8, work = 4 * 12 * 8, hf = "" },
    unembedding {},
    cross_entropy {},
  },
  cut = { 3 },
  optimizer = sgd { lr = 1e-30 },
}
