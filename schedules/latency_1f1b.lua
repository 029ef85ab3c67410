-- 1F1B over links with latency: extra warm-up forwards cover the messages in flight.
-- 1F1B (Narayanan 2019) loses 2 c for nearly every microbatch if a message takes c: a rank's next forward waits for a
-- backward that is still on its way. Rank r of P is P - 1 - r hops from the last, and a round trip over each hop takes
-- 2 c, so with ceil(2 c / (F + B)) more forwards per hop, it always has one to run in the meantime:
--   warm-up  P - r + (P - 1 - r) ceil(2 c / (F + B))     makespan  (M + P - 1)(F + B) + 2 (P - 1) c
-- No order of P stages on P ranks is faster: the last rank's work comes after P - 1 hops and before P - 1 others. The
-- extra forwards are rounded up per hop: if rounded once over all hops, this strict order would idle. The cost is
-- memory, as rank r holds its warm-up microbatches. latency: in units of cost, as in latency.lua; cycle: F + B of a
-- microbatch on a rank.
--
-- pianola show schedules/latency_1f1b.lua
--| time    0              5              10             15             20             25             30
--| rank 0  F0 F1 F2 F3 F4 F5 F6  .  .  . B0--- F7 B1---  . B2---  . B3---  . B4---  . B5---  . B6---  . B7---
--| rank 1   . F0 F1 F2 F3 F4  .  . B0--- F5 B1--- F6 B2--- F7 B3---  . B4---  . B5---  . B6---  . B7---  .  .
--| rank 2   .  . F0 F1 F2  . B0--- F3 B1--- F4 B2--- F5 B3--- F6 B4--- F7 B5---  . B6---  . B7---  .  .  .  .
--| rank 3   .  .  . F0 B0--- F1 B1--- F2 B2--- F3 B3--- F4 B4--- F5 B5--- F6 B6--- F7 B7---  .  .  .  .  .  .
local p = params { workers = 4, batches = 8, latency = 1.0, cycle = 3.0 }
local P = p.workers
if p.latency < 0 or p.cycle <= 0 then error("latency must be at least 0, and cycle above 0") end
local more = math.ceil(2 * p.latency / p.cycle)

return schedule {
  workers = P, stages = P, batches = p.batches,
  w = function(s, b, d) return s, s end,
  n = function(s, b, d) return one_forward_one_backward(b, d, P - s + (P - 1 - s) * more) end, order = "strict",
  bubble = (P - 1) / (p.batches + P - 1),
  tune = { latency = { 1.0, 3.0 } },
}
