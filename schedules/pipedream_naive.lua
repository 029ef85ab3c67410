-- Naive pipelining without flushes: every job reads the newest weights, so a backward reads others than its forward did.
-- Harlap 2018, "PipeDream: Fast and Efficient Pipeline Parallel DNN Training", section 3.3, says why that is no gradient
-- of anything: it is here to be compared with.
local p = params { workers = 4, batches = 24 }
return schedule {
  workers = p.workers, stages = p.workers, batches = p.batches,
  w = function(s, b, d) return s, s end,
  n = function(s, b, d) return one_forward_one_backward(b, d, p.workers - s) end, order = "strict",
  update = "each", version = "latest",
}
