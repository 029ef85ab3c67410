-- Naive model parallelism: a stage per rank, and one microbatch at a time.
-- GPipe's baseline: Huang 2019, "GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism", figure
-- 2(b). Only one rank is busy at any time: the makespan is M P (F + B).
--
-- pianola show schedules/naive.lua
--| time    0         10        20        30        40        50        60        70        80        90
--| rank 0  F.........B0F.........B1F.........B2F.........B3F.........B4F.........B5F.........B6F.........B7
--| rank 1  .F......B0...F......B1...F......B2...F......B3...F......B4...F......B5...F......B6...F......B7..
--| rank 2  ..F...B0......F...B1......F...B2......F...B3......F...B4......F...B5......F...B6......F...B7....
--| rank 3  ...FB0.........FB1.........FB2.........FB3.........FB4.........FB5.........FB6.........FB7......
local p = params { workers = 4, batches = 8 }

return schedule {
  workers = p.workers, stages = p.workers, batches = p.batches,
  w = function(s, b, d) return s, s end,
  n = oldest_batch_first, order = "strict",
  bubble = (p.workers - 1) / p.workers,
}
