-- 2BP: weight gradients split off and run where a rank would idle; on naive, GPipe's or 1F1B's order.
-- Rae 2024, "2BP: 2-Stage Backpropagation", figure 1. In the paper, 1F1B-1 has as many microbatches as ranks (batches =
-- workers), 1F1B-2 has twice as many, and the naive pipeline has one. Unlike in ZB-H1, nothing limits the memory held
-- by delayed weight gradients.
--
-- pianola show schedules/2bp.lua
--| time    0              5              10             15             20             25
--| rank 0  F0 F1 F2 F3  .  .  . I0 F4 I1 F5 I2 F6 I3 F7 I4 W0 I5 W1 I6 W2 I7 W3 W4 W5 W6 W7
--| rank 1   . F0 F1 F2  .  . I0 F3 I1 F4 I2 F5 I3 F6 I4 F7 I5 W0 I6 W1 I7 W2 W3 W4 W5 W6 W7
--| rank 2   .  . F0 F1  . I0 F2 I1 F3 I2 F4 I3 F5 I4 F6 I5 F7 I6 W0 I7 W1 W2 W3 W4 W5 W6 W7
--| rank 3   .  .  . F0 I0 F1 I1 F2 I2 F3 I3 F4 I4 F5 I5 F6 I6 F7 I7 W0 W1 W2 W3 W4 W5 W6 W7
local p = params { workers = 4, batches = 8, scheme = "1f1b" }
local orders = {
  naive = oldest_batch_first,
  gpipe = forward_first,
  ["1f1b"] = function(s, b, d) return one_forward_one_backward(b, d, p.workers - s) end,
}
-- With GPipe's order, ranks wait P - 1 times for an F and an I; with 1F1B's, weight gradients fill a third of that, as in
-- ZB-H1: (P - 1)(F + I - W), given at least as many microbatches as ranks.
local P, M = p.workers, p.batches
local idle = ({ naive = M == 1 and 2 * (P - 1) or nil, gpipe = 2 * (P - 1), ["1f1b"] = M >= P and P - 1 or nil })[p.scheme]
if not orders[p.scheme] then error("scheme = " .. p.scheme .. ": expected naive, gpipe or 1f1b") end

return schedule {
  workers = p.workers, stages = p.workers, batches = p.batches,
  w = function(s, b, d) return s, s end,
  split_backward = true,
  n = orders[p.scheme], order = "strict",
  fill = function(s, b, d) return d == "W" end,
  bubble = idle and idle / (3 * M + idle) or nil,
  tune = { scheme = { "1f1b", "gpipe" } },
}
