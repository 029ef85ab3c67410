-- PipeDream with vertical sync: a microbatch reads, on all stages, the weights that its input stage had when it came.
-- Harlap 2018, "PipeDream: Fast and Efficient Pipeline Parallel DNN Training", section 3.3. Staleness is P - 1 on all of
-- the P stages, so the last one keeps as many versions as the first; it trains as data parallelism with that delay does.
local p = params { workers = 4, batches = 24 }
return schedule {
  workers = p.workers, stages = p.workers, batches = p.batches,
  w = function(s, b, d) return s, s end,
  n = function(s, b, d) return one_forward_one_backward(b, d, p.workers - s) end, order = "strict",
  update = "each", version = "input",
}
