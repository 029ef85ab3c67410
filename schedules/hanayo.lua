-- Hanayo: a pipeline that goes down the ranks and back up, waves times: 2 x waves stages per rank.
-- Its bubbles are as small as Chimera's, without a second copy of the weights; more waves make them even smaller.
-- Liu 2023, "Hanayo: Harnessing Wave-like Pipeline Parallelism for Enhanced Large Model Training Efficiency", section
-- 3; more than P microbatches run as units of P, one after the other.
--
-- pianola show schedules/hanayo.lua
--| time    0              5              10             15             20             25             30             35
--| rank 0  F0 F1 F2 F3  .  .  . F0 B0--- F1 B1--- F2 B2--- F3 B3---  .  .  . B0---  .  . B1---  .  . B2---  .  . B3---
--| rank 1   . F0 F1 F2  .  . F0 F3 F1  . B0--- F2 B1--- F3 B2---  .  . B0--- B3--- B1---  .  . B2---  .  . B3---  .  .
--| rank 2   .  . F0 F1  . F0 F2 F1 F3 F2  .  . B0--- F3 B1---  . B0--- B2--- B1--- B3--- B2---  .  . B3---  .  .  .  .
--| rank 3   .  .  . F0 F0 F1 F1 F2 F2 F3 F3  .  .  . B0--- B0--- B1--- B1--- B2--- B2--- B3--- B3---  .  .  .  .  .  .
local p = params { workers = 4, waves = 1, batches = 4 }
local P, S = p.workers, 2 * p.workers * p.waves

-- The slot of a job, if F and B take one slot each: microbatches enter every other slot, because they pass each rank
-- both on their way down and on their way back up. The next unit of P enters after 2 S slots, the work of one unit.
local function slot(s, b, d)
  return 2 * S * (b // P) + 2 * (b % P) + (d == "F" and s or 2 * S - 1 - s)
end

return schedule {
  workers = P, stages = S, batches = p.batches,
  w = function(s, b, d)
    local along = s % (2 * P)
    local rank = along < P and along or 2 * P - 1 - along
    return rank, rank
  end,
  n = slot, order = "strict",
  bubble = p.batches == P and 4 * (P - 1) / (3 * S + 4 * (P - 1)) or nil, -- from the slots, not the paper
  tune = { waves = { 1, 2, 4 } },
}
