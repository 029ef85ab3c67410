-- Overflow: a pipeline with extra ranks that take the first backwards of early stages: less memory.
-- The extra ranks own no stage. The activations of early stages live longest; their stash goes to an extra rank, and
-- the gradient comes back. This takes no more time, but more ranks.
-- Rahimi 2025, "Unifying Parallelization Schemes to Train Deep Nets", the simulator's notebook, "Cuckoo Scheduling",
-- where stages = 64, extra = 30 and batches = 128. Only backwards with s < stages - extra and b < moved go to the extra
-- ranks.
--
-- pianola show schedules/overflow.lua
--| time    0              5              10             15             20             25             30
--| rank 0  F0 F1 F2 F3 F4 F5 F6 F7  .  .  .  .  .  .  .  . B2---  . B3---  . B4---  . B5---  . B6---  . B7---
--| rank 1   . F0 F1 F2 F3 F4 F5 F6 F7  .  .  .  .  . B2---  . B3---  . B4---  . B5---  . B6---  . B7---  .  .
--| rank 2   .  . F0 F1 F2 F3 B0--- F4 B1--- F5 B2--- F6 B3--- F7 B4---  . B5---  . B6---  . B7---  .  .  .  .
--| rank 3   .  .  . F0 B0--- F1 B1--- F2 B2--- F3 B3--- F4 B4--- F5 B5--- F6 B6--- F7 B7---  .  .  .  .  .  .
--| rank 4   .  .  .  .  .  .  .  .  .  . B0---  . B1---  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .
--| rank 5   .  .  .  .  .  .  .  . B0---  . B1---  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .
local p = params { stages = 4, extra = 2, batches = 8 }
local S = p.stages
local moved = params { moved = 5 * p.batches // 16 }.moved
if p.extra < 1 or p.extra >= S then error("extra = " .. p.extra .. " must be at least 1 and below stages = " .. S) end

return schedule {
  workers = S + p.extra, stages = S, batches = p.batches,
  w = function(s, b, d)
    if d == "F" or s >= S - p.extra or b >= moved then return s, s end
    return s, S + s % p.extra
  end,
  n = oldest_batch_first,
}
