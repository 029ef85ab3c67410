-- Context parallelism on a pipeline: 1F1B whose stages are teams over the sequence.
-- A model with parallel = "context" or "ulysses" gives each member some rows of every microbatch, so a member holds a
-- part of each activation and computes a part of the attention, however long the sequence is. Members send their own
-- rows to the next stage. All members have all weights, and sum their gradients at the end, like replicas. Llama Team
-- 2024, "The Llama 3 Herd of Models", section 3.3.2; Jacobs 2023, "DeepSpeed Ulysses", section 3.
--
-- pianola show schedules/context.lua
--| time    0              5              10             15             20             25
--| rank 0  F0 F1  .  . B0--- F2 B1--- F3 B2--- F4 B3--- F5 B4--- F6 B5--- F7 B6---  . B7---
--| rank 1  F0 F1  .  . B0--- F2 B1--- F3 B2--- F4 B3--- F5 B4--- F6 B5--- F7 B6---  . B7---
--| rank 2  F0 F1  .  . B0--- F2 B1--- F3 B2--- F4 B3--- F5 B4--- F6 B5--- F7 B6---  . B7---
--| rank 3  F0 F1  .  . B0--- F2 B1--- F3 B2--- F4 B3--- F5 B4--- F6 B5--- F7 B6---  . B7---
--| rank 4   . F0 B0--- F1 B1--- F2 B2--- F3 B3--- F4 B4--- F5 B5--- F6 B6--- F7 B7---  .  .
--| rank 5   . F0 B0--- F1 B1--- F2 B2--- F3 B3--- F4 B4--- F5 B5--- F6 B6--- F7 B7---  .  .
--| rank 6   . F0 B0--- F1 B1--- F2 B2--- F3 B3--- F4 B4--- F5 B5--- F6 B6--- F7 B7---  .  .
--| rank 7   . F0 B0--- F1 B1--- F2 B2--- F3 B3--- F4 B4--- F5 B5--- F6 B6--- F7 B7---  .  .
local p = params { workers = 8, team = 4, batches = 8 }
if p.workers % p.team ~= 0 then error("team = " .. p.team .. " must divide workers = " .. p.workers) end
local depth = p.workers // p.team
local stages = params { stages = depth }.stages
if stages ~= depth then error("a stage per team: stages = " .. stages .. " must be " .. depth) end
local team = {}
for s = 0, depth - 1 do
  team[s] = {}
  for i = 1, p.team do team[s][i] = s * p.team + i - 1 end
end

return schedule {
  workers = p.workers, stages = stages, batches = p.batches,
  w = function(s, b, d) return team[s], team[s] end,
  n = function(s, b, d) return one_forward_one_backward(b, d, depth - s) end, order = "strict",
  tune = { team = "divisors" },
}
