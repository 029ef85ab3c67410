-- Chimera: two pipelines through the same ranks, one from each end: half the bubble of 1F1B.
-- Each pipeline has a copy of the weights, and uses exactly the slots that the other leaves idle.
-- Li and Hoefler 2021, "Chimera: Efficiently Training Large-Scale Neural Networks with Bidirectional Pipelines",
-- section 3.1; more than P microbatches as in section 3.5, by direct concatenation of units of P. Even microbatches
-- go down, odd ones up.
--
-- pianola show schedules/chimera.lua
--| time    0              5              10             15             20             25
--| rank 0  F0 F2  . F1 B1--- F3 B3---  . B0--- F4  . B2--- F6 F5 B5--- F7 B7---  . B4---  .  . B6---
--| rank 1   . F0 F1 F2 F3  . B1--- B0--- B3--- B2--- F4 F5  . F6 F7  . B5--- B4--- B7--- B6---  .  .
--| rank 2   . F1 F0 F3 F2  . B0--- B1--- B2--- B3--- F5 F4  . F7 F6  . B4--- B5--- B6--- B7---  .  .
--| rank 3  F1 F3  . F0 B0--- F2 B2---  . B1--- F5  . B3--- F7 F4 B4--- F6 B6---  . B5---  .  . B7---
local p = params { workers = 4, batches = 8 }
local P, M = p.workers, p.batches
if P % 2 ~= 0 then error("Chimera's two pipelines leave each other room only if workers = " .. P .. " is even") end
if M % 2 ~= 0 then error("Chimera sends half of the microbatches each way: batches = " .. M .. " must be even") end

-- The slot of a job, if F and B take one slot each. A microbatch of a unit of P enters every other slot, and turns
-- round after P slots. The next unit enters after 2 P slots, the work of one unit.
local function slot(s, b, d)
  local unit, turn = b // P, b % P // 2
  return 2 * P * unit + 2 * turn + (d == "F" and s or 2 * P - 1 - s)
end

return schedule {
  workers = P, stages = P, batches = M,
  w = function(s, b, d)
    local rank = b % 2 == 0 and s or P - 1 - s
    return rank, rank
  end,
  n = slot, order = "strict",
  bubble = M == P and (P - 2) / (3 * P / 2 + P - 2) or nil,
}
