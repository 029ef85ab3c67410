-- TeraPipe: GPipe's order of slices; each microbatch is cut along its sequence.
-- Li 2021, "TeraPipe: Token-Level Pipeline Parallelism for Training Large-Scale Language Models", section 3. A token
-- attends to those before it, so a slice can follow the slices before it through the stages. P ranks with M
-- microbatches of Q slices take the time of 3 (M Q + P - 1) slice forwards, and hold M Q slices: GPipe's figures for M
-- Q microbatches. Backwards go from the last slice to the first.
--
-- pianola show schedules/terapipe.lua
--| time    0              5              10             15             20             25             30
--| rank 0  F- F- F- F- F- F- F- F-  .  .  .  .  .  .  .  .  . B0.1- B0.0- B1.1- B1.0- B2.1- B2.0- B3.1- B3.0-
--| rank 1   . F- F- F- F- F- F- F- F-  .  .  .  .  .  . B0.1- B0.0- B1.1- B1.0- B2.1- B2.0- B3.1- B3.0-  .  .
--| rank 2   .  . F- F- F- F- F- F- F- F-  .  .  . B0.1- B0.0- B1.1- B1.0- B2.1- B2.0- B3.1- B3.0-  .  .  .  .
--| rank 3   .  .  . F- F- F- F- F- F- F- F- B0.1- B0.0- B1.1- B1.0- B2.1- B2.0- B3.1- B3.0-  .  .  .  .  .  .
local p = params { workers = 4, batches = 4, slices = 2, costs = {} } -- costs: the slices' forward costs
local Q = p.slices

return schedule {
  workers = p.workers, stages = p.workers, batches = p.batches, slices = Q,
  w = function(s, b, d, q) return s, s end,
  n = function(s, b, d, q)
    q = q or 0 -- nil without slices
    return d == "F" and b * Q + q or (p.batches + b + 1) * Q - q
  end,
  cost = p.costs[1] and function(s, b, d, q) return (d == "F" and 1 or 2) * p.costs[(q or 0) + 1] end,
  bubble = not p.costs[1] and (p.workers - 1) / (p.batches * Q + p.workers - 1) or nil,
  tune = { slices = { 2, 4 } },
}
