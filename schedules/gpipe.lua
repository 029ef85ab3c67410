-- GPipe: a stage per rank; all forwards, then all backwards.
-- Every rank holds all microbatches at the peak.
-- Huang 2019, "GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism", section 2.3;
-- w = (s, s) in Rahimi 2025, "Unifying Parallelization Schemes to Train Deep Nets".
--
-- pianola show schedules/gpipe.lua
--| time    0              5              10             15             20             25             30
--| rank 0  F0 F1 F2 F3 F4 F5 F6 F7  .  .  .  .  .  .  .  .  . B0--- B1--- B2--- B3--- B4--- B5--- B6--- B7---
--| rank 1   . F0 F1 F2 F3 F4 F5 F6 F7  .  .  .  .  .  . B0--- B1--- B2--- B3--- B4--- B5--- B6--- B7---  .  .
--| rank 2   .  . F0 F1 F2 F3 F4 F5 F6 F7  .  .  . B0--- B1--- B2--- B3--- B4--- B5--- B6--- B7---  .  .  .  .
--| rank 3   .  .  . F0 F1 F2 F3 F4 F5 F6 F7 B0--- B1--- B2--- B3--- B4--- B5--- B6--- B7---  .  .  .  .  .  .
local p = params { workers = 4, batches = 8 }
local stages = params { stages = p.workers }.stages
if stages ~= p.workers then error("GPipe has a stage per rank: stages = " .. stages .. " must equal workers = " .. p.workers) end

return schedule {
  workers = p.workers, stages = stages, batches = p.batches,
  w = function(s, b, d) return s, s end,
  n = forward_first, order = "strict",
  bubble = (stages - 1) / (p.batches + stages - 1),
}
