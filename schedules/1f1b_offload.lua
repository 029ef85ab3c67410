-- 1F1B with stashes in host memory: every second one leaves after its forward and comes back before its backward.
-- Wan 2025, "PipeOffload: Improving Scalability of Pipeline Parallelism with Memory Optimization": if the link to host
-- memory is fast enough for half of the stashes, the step takes no longer. The last stage's stashes are read at once,
-- so they stay.
--
-- pianola show schedules/1f1b_offload.lua
--| time    0              5              10             15             20             25             30
--| rank 0  F0 F1 F2 F3  .  .  .  .  .  . B0--- F4 B1--- F5 B2--- F6 B3--- F7 B4---  . B5---  . B6---  . B7---
--| rank 1   . F0 F1 F2  .  .  .  . B0--- F3 B1--- F4 B2--- F5 B3--- F6 B4--- F7 B5---  . B6---  . B7---  .  .
--| rank 2   .  . F0 F1  .  . B0--- F2 B1--- F3 B2--- F4 B3--- F5 B4--- F6 B5--- F7 B6---  . B7---  .  .  .  .
--| rank 3   .  .  . F0 B0--- F1 B1--- F2 B2--- F3 B3--- F4 B4--- F5 B5--- F6 B6--- F7 B7---  .  .  .  .  .  .
local p = params { workers = 4, batches = 8, every = 2 }

return schedule {
  workers = p.workers, stages = p.workers, batches = p.batches,
  w = function(s, b, d) return s, s end,
  n = function(s, b, d) return one_forward_one_backward(b, d, p.workers - s) end, order = "strict",
  offload = function(s, b) return b % p.every == 0 and s < p.workers - 1 end,
  tune = { every = { 1, 2, 4 } },
}
