-- ZeRO-1: as DDP, but the replicas divide the optimizer's state. Each updates its piece of the weights, which it then
-- shares: the same bytes travel as in DDP.
-- Rajbhandari 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", sections 5.1 and 7.2.
--
-- pianola show schedules/zero1.lua
local p = params { workers = 8, stages = 4, batches = 8 }

return schedule {
  workers = p.workers, stages = p.stages, batches = p.batches,
  w = function(s, b, d) return b % p.workers, b % p.workers end,
  n = oldest_batch_first,
  zero = 1,
}
