-- A model of two linear layers with a unit between them, whose fields a test changes: -D source=… and so on.
local p = params { source = "fine.c", name = "", width = 8, in_width = 0, out_rows = 0, keeps = "x", side = "", data = "",
  library = "", sha256 = "", stash = 4 * 12 * 8, extra = 4 * 12 * 8, work = 4 * 12 * 8, frozen = false, cold = "" }

local function filled(s) return s ~= "" and s or nil end
local scale = unit {
  source = filled(p.source),
  name = filled(p.name),
  libraries = filled(p.library) and { { p.library, sha256 = filled(p.sha256) } } or nil,
  width = p.width,
  in_width = p.in_width,
  out_rows = p.out_rows,
  parameters = { scale = { 8 }, shift = { 8 } },
  init = { scale = "ones" },
  keeps = p.keeps,
  stash = p.stash,
  extra = p.extra,
  work = p.work,
  side = filled(p.side) and { p.side },
  data = filled(p.data) or (p.frozen or filled(p.cold)) and "own.safetensors" or nil,
  frozen = filled(p.cold) and { p.cold } or p.frozen,
}

return model {
  input = tokens { vocab = 16, context = 4, rows = 3 },
  layers = { embedding { width = 8 }, scale, linear { width = 8 }, scale, linear { width = 16 }, cross_entropy {} },
  optimizer = sgd { lr = 0.1 },
}
