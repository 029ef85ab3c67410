-- FSDP with gradient accumulation: each rank runs several microbatches per step, one after the other.
-- With room for all stages, weights are gathered once and gradients reduced once, however many microbatches there are.
-- With slots = 0 and sums = 1 nothing is kept: each microbatch needs two gathers and a reduction of every stage, which
-- is ZeRO-3's default (Rajbhandari 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models",
-- section 5.3).
--
-- pianola show schedules/accumulate.lua
--| time    0       2       4       6       8       10      12      14      16      18      20      22
--| rank 0  0F0 1F0 2F0 3F0 3B0---- 2B0---- 1B0---- 0B0---- 0F4 1F4 2F4 3F4 3B4---- 2B4---- 1B4---- 0B4----
--| rank 1  0F1 1F1 2F1 3F1 3B1---- 2B1---- 1B1---- 0B1---- 0F5 1F5 2F5 3F5 3B5---- 2B5---- 1B5---- 0B5----
--| rank 2  0F2 1F2 2F2 3F2 3B2---- 2B2---- 1B2---- 0B2---- 0F6 1F6 2F6 3F6 3B6---- 2B6---- 1B6---- 0B6----
--| rank 3  0F3 1F3 2F3 3F3 3B3---- 2B3---- 1B3---- 0B3---- 0F7 1F7 2F7 3F7 3B7---- 2B7---- 1B7---- 0B7----
local p = params { workers = 4, stages = 4, batches = 8, slots = 4, sums = 4 }
local all = {}
for r = 0, p.workers - 1 do all[r + 1] = r end

return schedule {
  workers = p.workers, stages = p.stages, batches = p.batches,
  w = function(s, b, d) return all, b % p.workers end,
  n = oldest_batch_first,
  weight_slots = p.slots, grad_slots = p.sums,
  tune = { stages = { 1, 4, 8, 16 }, slots = { 1, 2, 4 } },
}
