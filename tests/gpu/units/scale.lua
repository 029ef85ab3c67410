-- A small model with the unit of scale.cpp; -D gpu=false takes scale.c's instead.
local p = params { gpu = true, layers = 2 }

local function scale()
  return unit {
    source = p.gpu and "scale.cu" or "scale.c",
    libraries = p.gpu and "libscale.so" or nil,
    parameters = { { "scale", 22 }, { "matrix", 22, 20 } },
    init = { scale = "ones" },
    width = 20,
    in_rows = 8,
    in_width = 22,
    keeps = "x",
    stash = 4 * 8 * 22,
    extra = 4 * 8 * 22,
    work = 8192 + 4 * 1024 * 1024,
  }
end

local layers = { embedding { width = 22 } }
for i = 1, p.layers do
  layers[#layers + 1] = scale()
  layers[#layers + 1] = linear { width = 22 }
end
layers[#layers + 1] = linear { width = 256 }
layers[#layers + 1] = cross_entropy {}

return model {
  input = tokens { vocab = 256, context = 4, rows = 2 },
  layers = layers,
  optimizer = adamw { lr = 1e-2 },
}
