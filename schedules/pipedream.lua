-- PipeDream: a pipeline without flushes, whose stages are updated after every microbatch.
-- Harlap 2018, "PipeDream: Fast and Efficient Pipeline Parallel DNN Training", sections 3.2 and 3.3.
local p = params { workers = 4, batches = 40 }
return schedule {
  workers = p.workers, stages = p.workers, batches = p.batches,
  w = function(s, b, d) return s, s end,
  n = backward_first, cap = function(worker) return p.workers - worker end,
  update = "each",
}
