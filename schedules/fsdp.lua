-- Fully Sharded Data Parallelism, ZeRO-3: as DDP, but each stage's weights, gradient and optimizer state are cut evenly over
-- all ranks, gathered before use, and dropped when their slot is needed.
-- Zhao 2023, "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel", section 3; Rajbhandari 2020, "ZeRO: Memory
-- Optimizations Toward Training Trillion Parameter Models", section 5.3.
--
-- pianola show schedules/fsdp.lua
local p = params { workers = 8, stages = 4, batches = 8, slots = 2 }
local all = {}
for r = 0, p.workers - 1 do all[r + 1] = r end

return schedule {
  workers = p.workers, stages = p.stages, batches = p.batches,
  w = function(s, b, d) return all, b % p.workers end,
  n = oldest_batch_first,
  weight_slots = p.slots,
}
