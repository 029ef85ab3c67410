-- 1F1B of jobs that all take different times, so that nothing repeats.
local p = params { workers = 250, batches = 2000 }
return schedule {
  workers = p.workers, stages = p.workers, batches = p.batches,
  w = function(s, b, d) return s, s end,
  n = function(s, b, d) return one_forward_one_backward(b, d, p.workers - s) end, order = "strict",
  cost = function(s, b, d) return 1 + ((s * 7919 + b * 104729) % 1000) / 1000 end,
}
