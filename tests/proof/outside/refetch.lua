-- No rank keeps fetched weights: each job fetches them again. Every other backward is split.
local p = params { workers = 2, stages = 3, batches = 2 }
return schedule {
  workers = p.workers, stages = p.stages, batches = p.batches,
  w = function(s, b, d) return s % p.workers, b % p.workers end,
  n = oldest_batch_first,
  weight_slots = function() return 0 end,
  split_backward = function(s, b) return (s + b) % 2 == 0 end,
  recompute = function(s, b) return s == 1 end,
}
