-- Distributed Data Parallelism: each rank has all the weights and computes its microbatches alone.
-- Rahimi 2025, "Unifying Parallelization Schemes to Train Deep Nets", section "Formal definitions of distributed
-- schedules": w = (b, b), with as many workers as microbatches. Here b may exceed the workers and wraps around.
-- A stage's gradient is summed as soon as its last backward has run, or piece by piece while it runs. bucket: bytes per
-- piece (Li 2020, "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", section 3.2.3); 0: chosen
-- by the cost of the links.
--
-- pianola show schedules/ddp.lua
--| time    0       2       4       6       8       10
--| rank 0  0F0 1F0 2F0 3F0 3B0---- 2B0---- 1B0---- 0B0----
--| rank 1  0F1 1F1 2F1 3F1 3B1---- 2B1---- 1B1---- 0B1----
--| rank 2  0F2 1F2 2F2 3F2 3B2---- 2B2---- 1B2---- 0B2----
--| rank 3  0F3 1F3 2F3 3F3 3B3---- 2B3---- 1B3---- 0B3----
--| rank 4  0F4 1F4 2F4 3F4 3B4---- 2B4---- 1B4---- 0B4----
--| rank 5  0F5 1F5 2F5 3F5 3B5---- 2B5---- 1B5---- 0B5----
--| rank 6  0F6 1F6 2F6 3F6 3B6---- 2B6---- 1B6---- 0B6----
--| rank 7  0F7 1F7 2F7 3F7 3B7---- 2B7---- 1B7---- 0B7----
local p = params { workers = 8, stages = 4, batches = 8, bucket = 0 }

return schedule {
  workers = p.workers, stages = p.stages, batches = p.batches,
  w = function(s, b, d) return b % p.workers, b % p.workers end,
  n = oldest_batch_first,
  bucket = p.bucket > 0 and p.bucket or nil,
  tune = { stages = { 1, 4, 16 } },
}
