-- ZB-H2: no bubble between a rank's first job and its last, in up to twice 1F1B's memory.
-- Qi 2023, "Zero Bubble Pipeline Parallelism", section 2: ranks run ahead with 2 (P - r) - 1 forwards, so that the first
-- input gradient finds them busy, and hold 2 P - 1 activations. A rank's span is its work when F = I = W; the makespan
-- equals ZB-H1's, because the step ends for all ranks at once (in the paper, ranks may begin the next step before
-- that).
--
-- pianola show schedules/zb_h2.lua
--| time    0              5              10             15             20             25
--| rank 0  F0 F1 F2 F3 F4 F5 F6 I0 W0 F7 I1 I2 W1 W2 I3 I4 W3 W4 I5 I6 W5 W6 I7 W7  .  .  .
--| rank 1   . F0 F1 F2 F3 F4 I0 F5 I1 F6 I2 W0 F7 I3 I4 W1 W2 I5 I6 W3 W4 I7 W5 W6 W7  .  .
--| rank 2   .  . F0 F1 F2 I0 F3 I1 F4 I2 F5 I3 F6 I4 W0 F7 I5 I6 W1 W2 I7 W3 W4 W5 W6 W7  .
--| rank 3   .  .  . F0 I0 F1 I1 F2 I2 F3 I3 F4 I4 F5 I5 F6 I6 W0 F7 I7 W1 W2 W3 W4 W5 W6 W7
local p = params { workers = 4, batches = 8 }

return schedule {
  workers = p.workers, stages = p.workers, batches = p.batches,
  w = function(s, b, d) return s, s end,
  split_backward = true,
  n = function(s, b, d) return one_forward_one_backward(b, d, 2 * (p.workers - s) - 1) end, order = "strict",
  fill = function(s, b, d) return d == "W" end,
  cap = 2 * p.workers - 1,
  bubble = p.batches >= p.workers and (p.workers - 1) / (3 * p.batches + p.workers - 1) or nil,
}
