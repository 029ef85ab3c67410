-- Distributed Data Parallelism: each rank has all the weights and computes its microbatches alone.
-- Rahimi 2025, "Unifying Parallelization Schemes to Train Deep Nets", section "Formal definitions of distributed
-- schedules": w = (b, b), with as many workers as microbatches. Here b may exceed the workers: it goes round.
--
-- (timeline: see generated/ddp)
local p = params { workers = 8, stages = 4, batches = 8 }

return schedule {
  workers = p.workers, stages = p.stages, batches = p.batches,
  w = function(s, b, d) return b % p.workers, b % p.workers end,
  n = oldest_batch_first,
}
