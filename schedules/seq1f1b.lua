-- Seq1F1B: 1F1B's order of slices; each microbatch is cut along its sequence.
-- Ao 2024, "Seq1F1B: Efficient Sequence-Level Pipeline Parallelism for Large Language Model Training", section 3. The
-- first backward belongs to a microbatch's last slice, so rank r runs P - 1 - r + Q forwards of slices, then a backward
-- and a forward in turn. The makespan is TeraPipe's, and rank r holds P - 1 - r + Q slices, little more than one
-- microbatch. If slices differ in cost, every turn waits for the slowest one, so they should be cut by cost.
--
-- pianola show schedules/seq1f1b.lua
--| time    0              5              10             15             20             25             30
--| rank 0  F- F- F- F- F-  .  .  .  .  .  . B0.1- F- B0.0- F- B1.1- F- B1.0-  . B2.1-  . B2.0-  . B3.1- B3.0-
--| rank 1   . F- F- F- F-  .  .  .  . B0.1- F- B0.0- F- B1.1- F- B1.0- F- B2.1-  . B2.0-  . B3.1- B3.0-  .  .
--| rank 2   .  . F- F- F-  .  . B0.1- F- B0.0- F- B1.1- F- B1.0- F- B2.1- F- B2.0-  . B3.1- B3.0-  .  .  .  .
--| rank 3   .  .  . F- F- B0.1- F- B0.0- F- B1.1- F- B1.0- F- B2.1- F- B2.0- F- B3.1- B3.0-  .  .  .  .  .  .
local p = params { workers = 4, batches = 4, slices = 2, costs = {} } -- costs: the slices' forward costs
local Q = p.slices

return schedule {
  workers = p.workers, stages = p.workers, batches = p.batches, slices = Q,
  w = function(s, b, d, q) return s, s end,
  n = function(s, b, d, q)
    q = q or 0 -- nil without slices
    return one_forward_one_backward(b * Q + (d == "F" and q or Q - 1 - q), d, p.workers - 1 - s + Q)
  end, order = "strict",
  cost = p.costs[1] and function(s, b, d, q) return (d == "F" and 1 or 2) * p.costs[(q or 0) + 1] end,
  bubble = not p.costs[1] and (p.workers - 1) / (p.batches * Q + p.workers - 1) or nil,
  tune = { slices = { 2, 4 } },
}
