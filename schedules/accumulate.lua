-- FSDP with gradient accumulation: each rank runs several microbatches per step, one after the other.
-- With room for all stages, weights are gathered once and gradients reduced once, however many microbatches there are. With
-- slots = 0 and sums = 1 nothing is kept: two gathers and a reduction of every stage for each, as ZeRO-3 does it unless told
-- otherwise (Rajbhandari 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", section 5.3).
--
local p = params { workers = 4, stages = 4, batches = 8, slots = 4, sums = 4 }
local all = {}
for r = 0, p.workers - 1 do all[r + 1] = r end

return schedule {
  workers = p.workers, stages = p.stages, batches = p.batches,
  w = function(s, b, d) return all, b % p.workers end,
  n = oldest_batch_first,
  weight_slots = p.slots, grad_slots = p.sums,
}
