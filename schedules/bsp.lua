-- Bulk synchronous data parallelism: a microbatch per worker, then all sum their gradients, update, and go on.
-- Valiant 1990, "A Bridging Model for Parallel Computation"; the data parallelism that PipeDream is compared with
-- (Narayanan 2019, section 2.1). With one worker, a single machine that updates after each microbatch.
local p = params { workers = 4, stages = 4, batches = 24 }
return schedule {
  workers = p.workers, stages = p.stages, batches = p.batches,
  w = function(s, b, d) return b % p.workers, b % p.workers end,
  n = oldest_batch_first,
  update = p.workers, version = 0,
}
