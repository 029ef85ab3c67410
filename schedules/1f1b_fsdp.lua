-- 1F1B times FSDP: replicas of a pipeline; the ranks of a stage shard its weights.
-- Each rank gathers its stage once and keeps it for the whole step, so that ZeRO-3 costs a pipeline only one gather and
-- one reduction per stage.
--
-- pianola show schedules/1f1b_fsdp.lua
--| time    0              5              10             15             20
--| rank 0  F0 F2 F4 F6  .  .  .  .  .  . B0---  . B2---  . B4---  . B6---
--| rank 1   . F0 F2 F4  .  .  .  . B0--- F6 B2---  . B4---  . B6---  .  .
--| rank 2   .  . F0 F2  .  . B0--- F4 B2--- F6 B4---  . B6---  .  .  .  .
--| rank 3   .  .  . F0 B0--- F2 B2--- F4 B4--- F6 B6---  .  .  .  .  .  .
--| rank 4  F1 F3 F5 F7  .  .  .  .  .  . B1---  . B3---  . B5---  . B7---
--| rank 5   . F1 F3 F5  .  .  .  . B1--- F7 B3---  . B5---  . B7---  .  .
--| rank 6   .  . F1 F3  .  . B1--- F5 B3--- F7 B5---  . B7---  .  .  .  .
--| rank 7   .  .  . F1 B1--- F3 B3--- F5 B5--- F7 B7---  .  .  .  .  .  .
local p = params { workers = 8, replicas = 2, batches = 8 }
if p.workers % p.replicas ~= 0 then error("replicas = " .. p.replicas .. " must divide workers = " .. p.workers) end
local depth = p.workers // p.replicas
local stages = params { stages = depth }.stages
if stages ~= depth then error("a stage per rank of a replica: stages = " .. stages .. " must be " .. depth) end
local list = {}
for s = 0, depth - 1 do
  list[s] = {}
  for i = 0, p.replicas - 1 do list[s][i + 1] = i * depth + s end
end

return schedule {
  workers = p.workers, stages = stages, batches = p.batches,
  w = function(s, b, d) return list[s], b % p.replicas * depth + s end,
  n = function(s, b, d) return one_forward_one_backward(b // p.replicas, d, depth - s) end, order = "strict",
  tune = { replicas = "divisors" },
}
