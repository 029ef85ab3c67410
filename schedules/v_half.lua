-- V-Half: two chunks per rank in a V, spaced so that a rank holds half of 1F1B's activations.
-- Qi 2024, "Pipeline Parallelism with Controllable Memory", section 3: one microbatch's forwards and input gradients,
-- the building block, repeat every 6 units, and weight gradients fill the rest. Forwards take 2 units per rank on the
-- way down the V and 1 on the way up, input gradients likewise. The peak is (P + 2) // 2 microbatches.
--
-- pianola show schedules/v_half.lua
--| time    0         5         10        15        20        25        30        35        40        45        50
--| rank 0  F0F1F2F3. . . F0I0F1I1W0W1F2F4. I0I2W0F3W2F5I1I3W1F4W3F6I2I4W2F5W4F7I3I5W3F6W5. I4I6W4F7I7W6W7I5W5I6W6I7W7
--| rank 1  . F0F1F2. . F0. F1I0F3W0F2I1W1I0F4W0F3I2W2I1F5W1F4I3W3I2F6W2F5I4W4I3F7W3F6I5W5I4W4. F7I6W6I7I5W5I6W6I7W7W7
--| rank 2  . . F0F1. F0. F1F2. I0F2W0F3I0I1W0F3W1F4I1I2W1F4W2F5I2I3W2F5W3F6I3I4W3F6W4F7I4I5W4F7W5I5I6W5I7I6W6I7W6W7W7
--| rank 3  . . . F0F0F1F1. . F2F2I0I0W0F3W0F3I1I1W1F4W1F4I2I2W2F5W2F5I3I3W3F6W3F6I4I4W4F7W4F7I5I5W5W5I6I6I7I7W6W6W7W7
local p = params { workers = 4, batches = 8 }
local P, M = p.workers, p.batches
local cap = 2 * ((P + 2) // 2)
local gap = P % 2 == 0 and 3 or 0 -- keeps two jobs of a rank from the same unit

local function rank(s) return s < P and s or 2 * P - 1 - s end

-- The start of microbatch b's block plus the time of (s,b,d) in it. Ranks run their jobs in this order, as soon as they
-- can ("squeezing"). Where there is room, forwards of the first microbatches come earlier, and input gradients of the
-- last ones later ("reordering").
local function when(s, b, d)
  local r, t = rank(s), 6 * b
  if d == "F" then return s >= P and t + 3 * P - 2 - r or b < P - r and b or t + 2 * r end
  if s >= P then return t + 3 * P - 1 + gap + 2 * r end
  return b < M - math.min(P - r, P - 1) and t + 6 * P - 2 + gap - r or 6 * (M + P) + b
end

return schedule {
  workers = P, stages = 2 * P, batches = M,
  w = function(s, b, d) return rank(s), rank(s) end,
  split_backward = true,
  n = function(s, b, d) return d == "W" and b or when(s, b, d) end, order = "strict",
  fill = function(s, b, d) return d == "W" end,
  cap = cap,
}
