-- Graph: a stage per rank, which runs whatever is ready, for models whose stages form a graph.
-- Backward first. Examples are models/legs.lua and models/unet.lua; without a model, the stages form a chain.
--
-- pianola show schedules/graph.lua
--| time    0              5              10             15             20
--| rank 0  F0 F1 F2 F3  .  .  .  .  .  . B0---  . B1---  . B2---  . B3---
--| rank 1   . F0 F1 F2 F3  .  .  . B0---  . B1---  . B2---  . B3---  .  .
--| rank 2   .  . F0 F1 F2 F3 B0---  . B1---  . B2---  . B3---  .  .  .  .
--| rank 3   .  .  . F0 B0--- F1 B1--- F2 B2--- F3 B3---  .  .  .  .  .  .
local p = params { workers = 4, batches = 4, split = false }
return schedule {
  workers = p.workers, stages = p.workers, batches = p.batches,
  w = function(s, b, d) return s, s end,
  n = backward_first,
  split_backward = p.split,
  tune = { split = { false, true } },
}
