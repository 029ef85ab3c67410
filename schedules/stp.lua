-- STP: braided pairs hide a team's exchanges, in a V of two stages per rank; for -D tensor=2 or more.
-- Qi 2025, "Synergistic Tensor and Pipeline Parallelism", and its code, github.com/MICLAB-BUPT/STP, stp/schedule.py,
-- from which this takes the order, but not the copies to host memory. A rank runs each forward together with a
-- backward, another forward or a weight gradient, part by part. Only forwards that fill the pipeline and backwards that
-- drain it run alone. Rank r has the stages r and 2 P - 1 - r, whose backwards are split where a rank would idle.
--
-- pianola show schedules/stp.lua
--| time    0         10        20        30        40        50        60        70
--| rank 0  FFFFFFFFFFIFWFIFWFIFW...F4BF+BF5BB1FIB2FIB3FIB4FIB5FIB6FIB7B B8WWB9WWB WWB
--| rank 1  .FFFFFFFFFFFIFWFIFW..F4BF+BF5BF+BFIB2FIB3FIB4FIB5FIB6FIB7B B8B B9WWB WWB WW
--| rank 2  ..FFFFFFFFFFFFIFW.F4BF9BF5BF+BF6BFIFIB3FIB4FIB5FIB6FIB7B9B8B B9B B WWB WWWW
--| rank 3  ...FFFFFFFFFFFFF4BF8BF5BF9BF6BF+BFIFIFIB4FIB5FIB6FIB7B8B8B9B9B B B B WWWWWW
local p = params { workers = 4, batches = 12 }
local P, M = p.workers, p.batches
if M < 2 * P then error("STP fills a V of 2 P stages: batches = " .. M .. " must be at least " .. 2 * P) end

local function order(r)
  local upto, below = r + 1, P - 1 - r                     -- ranks up to this one; after it, to the V's tip
  local early = math.min(below, M - 2 * P)
  local rest = M - 2 * P - early                           -- F0 that meet a backward
  local split = math.min(r, 2 * rest + 1)
  local pairs = 2 * rest + 1 - split                       -- pairs of a forward and a whole backward
  local late = M - P - 1 - rest
  local rounds = math.min(below, (split + late) // 2)
  return unroll({
    { 2 * below, "F0" },
    { upto, "F0 F1" },
    { upto % 2, "F0" }, { upto // 2, "F0+F0" },
    { early, "F1+I1 F0+W" }, { below - early, "F1+I1 W" },
    { pairs // 2, "F1+B1 F0+B0" }, { pairs % 2, "F1+B1" },
    { split // 2, pairs % 2 == 1 and "F0+I0 F1+I1" or "F1+I1 F0+I0" }, { split % 2, "F1+I1" },
    { late, "B0 F1+I1" },
    { upto, "B0 B1" },
    { rounds, "B0 W W" }, { below - rounds + 1, "B0" },
    { split + late - 2 * rounds, "W" },
  }, function(x, k) return x == 0 and r or 2 * P - 1 - r, k end)
end

local sequence = {}
for r = 0, P - 1 do sequence[r + 1] = order(r) end

return schedule { workers = P, stages = 2 * P, batches = M, sequence = sequence }
