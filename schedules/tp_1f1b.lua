-- 1F1B whose stages are teams: pipeline parallelism between teams, tensor parallelism inside them.
-- A stage's ranks are next to each other, so that their exchanges stay inside a node, and member i of a stage sends to
-- member i of the next.
-- Narayanan 2021, "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", section 2.3.
--
-- pianola show schedules/tp_1f1b.lua
--| time    0              5              10             15             20             25             30
--| rank 0  F0 F1 F2 F3  .  .  .  .  .  . B0--- F4 B1--- F5 B2--- F6 B3--- F7 B4---  . B5---  . B6---  . B7---
--| rank 1  F0 F1 F2 F3  .  .  .  .  .  . B0--- F4 B1--- F5 B2--- F6 B3--- F7 B4---  . B5---  . B6---  . B7---
--| rank 2   . F0 F1 F2  .  .  .  . B0--- F3 B1--- F4 B2--- F5 B3--- F6 B4--- F7 B5---  . B6---  . B7---  .  .
--| rank 3   . F0 F1 F2  .  .  .  . B0--- F3 B1--- F4 B2--- F5 B3--- F6 B4--- F7 B5---  . B6---  . B7---  .  .
--| rank 4   .  . F0 F1  .  . B0--- F2 B1--- F3 B2--- F4 B3--- F5 B4--- F6 B5--- F7 B6---  . B7---  .  .  .  .
--| rank 5   .  . F0 F1  .  . B0--- F2 B1--- F3 B2--- F4 B3--- F5 B4--- F6 B5--- F7 B6---  . B7---  .  .  .  .
--| rank 6   .  .  . F0 B0--- F1 B1--- F2 B2--- F3 B3--- F4 B4--- F5 B5--- F6 B6--- F7 B7---  .  .  .  .  .  .
--| rank 7   .  .  . F0 B0--- F1 B1--- F2 B2--- F3 B3--- F4 B4--- F5 B5--- F6 B6--- F7 B7---  .  .  .  .  .  .
local p = params { workers = 8, tensor = 2, batches = 8 }
if p.workers % p.tensor ~= 0 then error("tensor = " .. p.tensor .. " must divide workers = " .. p.workers) end
local depth = p.workers // p.tensor
local stages = params { stages = depth }.stages
if stages ~= depth then error("a stage per team: stages = " .. stages .. " must be " .. depth) end
local team = {}
for s = 0, depth - 1 do
  team[s] = {}
  for i = 1, p.tensor do team[s][i] = s * p.tensor + i - 1 end
end

return schedule {
  workers = p.workers, stages = stages, batches = p.batches,
  w = function(s, b, d) return team[s], team[s] end,
  n = function(s, b, d) return one_forward_one_backward(b, d, depth - s) end, order = "strict",
}
