-- ZeRO-2: as ZeRO-1, but a replica keeps only its piece of the summed gradient as well.
-- Rajbhandari 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", sections 5.2 and 7.2.
--
-- pianola show schedules/zero2.lua
local p = params { workers = 8, stages = 4, batches = 8 }

return schedule {
  workers = p.workers, stages = p.stages, batches = p.batches,
  w = function(s, b, d) return b % p.workers, b % p.workers end,
  n = oldest_batch_first,
  zero = 2,
}
