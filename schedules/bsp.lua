-- BSP: bulk synchronous data parallelism; a microbatch per worker, then all sum their gradients and update.
-- Valiant 1990, "A Bridging Model for Parallel Computation"; PipeDream's paper compares against this data parallelism
-- (Narayanan 2019, section 2.1). With one worker, it is a single machine that updates after each microbatch.
--
-- pianola show schedules/bsp.lua
--| time    0       2       4       6       8       10      12      14      16      18      20      22
--| rank 0  0F0 1F0 2F0 3F0 3B0---- 2B0---- 1B0---- 0B0---- 0F4 1F4 2F4 3F4 3B4---- 2B4---- 1B4---- 0B4----
--|  period |----------------------------------------------|
--| rank 1  0F1 1F1 2F1 3F1 3B1---- 2B1---- 1B1---- 0B1---- 0F5 1F5 2F5 3F5 3B5---- 2B5---- 1B5---- 0B5----
--|  period |----------------------------------------------|
--| rank 2  0F2 1F2 2F2 3F2 3B2---- 2B2---- 1B2---- 0B2---- 0F6 1F6 2F6 3F6 3B6---- 2B6---- 1B6---- 0B6----
--|  period |----------------------------------------------|
--| rank 3  0F3 1F3 2F3 3F3 3B3---- 2B3---- 1B3---- 0B3---- 0F7 1F7 2F7 3F7 3B7---- 2B7---- 1B7---- 0B7----
--|  period |----------------------------------------------|
local p = params { workers = 4, stages = 4, batches = 24 }
return schedule {
  workers = p.workers, stages = p.stages, batches = p.batches,
  w = function(s, b, d) return b % p.workers, b % p.workers end,
  n = oldest_batch_first,
  update = p.workers, version = 0,
}
