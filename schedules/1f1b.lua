-- 1F1B: a stage per rank; after a warm-up, one forward and one backward in turn.
-- Narayanan 2019, "PipeDream: Generalized Pipeline Parallelism for DNN Training", section 3.2; with a flush at the end
-- of each step, as in Narayanan 2021, "Memory-Efficient Pipeline-Parallel DNN Training", section 3.2. Rank r runs P - r
-- forwards, then a backward and a forward in turn, so that it holds at most P - r microbatches: GPipe's makespan with
-- less memory.
--
-- pianola show schedules/1f1b.lua
--| time    0              5              10             15             20             25             30
--| rank 0  F0 F1 F2 F3  .  .  .  .  .  . B0--- F4 B1--- F5 B2--- F6 B3--- F7 B4---  . B5---  . B6---  . B7---
--| rank 1   . F0 F1 F2  .  .  .  . B0--- F3 B1--- F4 B2--- F5 B3--- F6 B4--- F7 B5---  . B6---  . B7---  .  .
--| rank 2   .  . F0 F1  .  . B0--- F2 B1--- F3 B2--- F4 B3--- F5 B4--- F6 B5--- F7 B6---  . B7---  .  .  .  .
--| rank 3   .  .  . F0 B0--- F1 B1--- F2 B2--- F3 B3--- F4 B4--- F5 B5--- F6 B6--- F7 B7---  .  .  .  .  .  .
local p = params { workers = 4, batches = 8 }
local stages = params { stages = p.workers }.stages
if stages ~= p.workers then error("1F1B has a stage per rank: stages = " .. stages .. " must equal workers = " .. p.workers) end

-- (With unit costs, a greedy order with n = backward_first and cap = P - s gives the same schedule.)
return schedule {
  workers = p.workers, stages = stages, batches = p.batches,
  w = function(s, b, d) return s, s end,
  n = function(s, b, d) return one_forward_one_backward(b, d, p.workers - s) end, order = "strict",
  bubble = (stages - 1) / (p.batches + stages - 1),
}
