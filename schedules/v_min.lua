-- V-Min: two chunks per rank in a V, as tight as can be: a rank holds a third of 1F1B's activations.
-- Qi 2024, "Pipeline Parallelism with Controllable Memory", section 3: one microbatch's forwards and input gradients,
-- the building block, take 1 unit per rank and repeat every 6 units; weight gradients fill the rest. The peak is
-- (P + 4) // 3 microbatches.
--
-- pianola show schedules/v_min.lua
--| time    0         10        20        30        40        50
--| rank 0  FF.....FIFW..FIIWFWFIIWFWFIIWFWFIIWFWFIIWFWFIIWW.FIIWW...IW
--| rank 1  .F....FF.IW.FFIIWWFFIIWWFFIIWWFFIIWWFFIIWWFFIIWWF.IIWW..IW.
--| rank 2  ..F..F..F.IFWIFWIFWIFWIFWIFWIFWIFWIFWIFWIFWIFWIFWIW.IW.IW..
--| rank 3  ...FF....FFIIWWFFIIWWFFIIWWFFIIWWFFIIWWFFIIWWFFIIWW..IIWW..
local p = params { workers = 4, batches = 8 }
local P, M = p.workers, p.batches
local cap = 2 * ((P + 4) // 3)
local gap = P % 3 == 0 and 2 or 0 -- keeps two jobs of a rank from the same unit

local function rank(s) return s < P and s or 2 * P - 1 - s end

-- The time of (s,b,d) by the block of its microbatch. Ranks run their jobs in this order, as soon as they can
-- ("squeezing"). Where there is a gap, forwards of the first microbatches come earlier, and input gradients of the last
-- ones later ("reordering").
local function when(s, b, d)
  local r = rank(s)
  local moved = gap > 0 and math.min(P - 1 - r, cap - 2 - r // 2) or 0
  if s < P and d == "F" and b < moved then return b end
  if s < P and d ~= "F" and b >= M - moved then return 6 * (M + P) + b end
  return 6 * b + (d == "F" and s or gap + 4 * P - 1 - s)
end

return schedule {
  workers = P, stages = 2 * P, batches = M,
  w = function(s, b, d) return rank(s), rank(s) end,
  split_backward = true,
  n = function(s, b, d) return d == "W" and b or when(s, b, d) end, order = "strict",
  fill = function(s, b, d) return d == "W" end,
  cap = cap,
}
