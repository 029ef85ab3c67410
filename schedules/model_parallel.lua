-- Model parallelism without pipelining: a stage per rank, one microbatch at a time, an update after each.
-- Narayanan 2019, "PipeDream: Generalized Pipeline Parallelism for DNN Training", section 2.1, figure 2.
--
-- pianola show schedules/model_parallel.lua
--| time    0              5              10             15             20
--| rank 0  F0  .  .  .  .  .  .  .  .  . B0--- F1  .  .  .  .  .  .  .  .  . B1---
--|  period |----------------------------------|
--| rank 1   . F0  .  .  .  .  .  . B0---  .  .  . F1  .  .  .  .  .  . B1---  .  .
--|  period |----------------------------|
--| rank 2   .  . F0  .  .  . B0---  .  .  .  .  .  . F1  .  .  . B1---  .  .  .  .
--|  period |----------------------|
--| rank 3   .  .  . F0 B0---  .  .  .  .  .  .  .  .  . F1 B1---  .  .  .  .  .  .
--|  period |----------------|
local p = params { workers = 4, batches = 24 }
return schedule {
  workers = p.workers, stages = p.workers, batches = p.batches,
  w = function(s, b, d) return s, s end,
  n = oldest_batch_first,
  update = "each", version = 0,
}
