-- Slices of microbatches whose stages are updated within the step, from weights that are `updates` updates old.
local p = params { stages = 3, batches = 6, slices = 1, cut = { 0 }, update = 2, version = 1 }

return schedule {
  workers = p.stages, stages = p.stages, batches = p.batches, slices = p.slices, update = p.update, version = p.version,
  w = function(s, b, d, q) return s, s end,
  n = function(s, b, d, q) return d == "F" and 1 or 0 end,
  slice_cut = #p.cut > 1 and p.cut or nil,
}
