-- Slices in unusual schedules: backwards run on other ranks, so that keys, values and their gradients are sent; also
-- with every feature that slices allow.
local p = params { workers = 3, stages = 3, batches = 3, slices = 3, away = 1, hop = 0, split = false, recompute = false,
  offload = false, cut = { 0 }, balanced = false }
local W = p.workers

return schedule {
  workers = W, stages = p.stages, batches = p.batches, slices = p.slices,
  w = function(s, b, d, q) return s % W, (s + (d == "F" and 0 or p.away + (q or 0) * p.hop) + (d == "W" and 1 or 0) * p.away) % W end,
  n = function(s, b, d, q) return d == "F" and 1 or 0 end,
  split_backward = p.split and function(s, b, q) return (s + b + q) % 2 == 0 end,
  recompute = p.recompute and function(s, b, q) return (s + q) % 2 == 0 end,
  offload = p.offload and function(s, b, q) return q > 0 end or nil,
  slice_cut = p.balanced and "balanced" or #p.cut > 1 and p.cut or nil,
}
