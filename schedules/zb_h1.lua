-- ZB-H1: 1F1B with the weight gradients in its bubbles, in 1F1B's memory; a third of the bubble.
-- Qi 2023, "Zero Bubble Pipeline Parallelism", section 2: forwards and input gradients keep 1F1B's order; a weight
-- gradient runs where the rank would idle, or has no room for another microbatch. The bubble is (P - 1)(F + I - W), and
-- every rank holds P activations, like 1F1B's first rank.
--
-- pianola show schedules/zb_h1.lua
--| time    0              5              10             15             20             25
--| rank 0  F0 F1 F2 F3  .  .  . I0 W0 F4 I1 W1 F5 I2 W2 F6 I3 W3 F7 I4 W4 I5 W5 I6 W6 I7 W7
--| rank 1   . F0 F1 F2  .  . I0 F3 I1 W0 F4 I2 W1 F5 I3 W2 F6 I4 W3 F7 I5 W4 I6 W5 I7 W6 W7
--| rank 2   .  . F0 F1  . I0 F2 I1 F3 I2 W0 F4 I3 W1 F5 I4 W2 F6 I5 W3 F7 I6 W4 I7 W5 W6 W7
--| rank 3   .  .  . F0 I0 F1 I1 F2 I2 F3 I3 W0 F4 I4 W1 F5 I5 W2 F6 I6 W3 F7 I7 W4 W5 W6 W7
local p = params { workers = 4, batches = 8 }

return schedule {
  workers = p.workers, stages = p.workers, batches = p.batches,
  w = function(s, b, d) return s, s end,
  split_backward = true,
  n = function(s, b, d) return one_forward_one_backward(b, d, p.workers - s) end, order = "strict",
  fill = function(s, b, d) return d == "W" end,
  cap = p.workers,
  bubble = p.batches >= p.workers and (p.workers - 1) / (3 * p.batches + p.workers - 1) or nil,
}
