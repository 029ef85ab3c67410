-- Fully Sharded Looped Pipeline Parallelism: like LPP, but each stage's weights live on one rank.
-- The ranks of the same stage in other groups fetch them.
-- Rahimi 2025, "Unifying Parallelization Schemes to Train Deep Nets", section "Formal definitions of distributed
-- schedules": home h(s, s), compute h(s, b), where group is the paper's R; oldest batch first, as in its simulator.
-- -D sharded=true: instead, each stage is sharded over all ranks that compute it, one per group.
--
-- pianola show schedules/fslpp.lua
--| time    0              5              10             15             20
--| rank 0  F0 F2 F4 F6  .  .  .  .  .  . B0---  . B2---  . B4---  . B6---
--| rank 1   . F0 F2 F4 F6  .  .  . B0---  . B2---  . B4---  . B6---  .  .
--| rank 2   .  . F0 F2 F4 F6 B0---  . B2---  . B4---  . B6---  .  .  .  .
--| rank 3   .  .  . F0 B0--- F2 B2--- F4 B4--- F6 B6---  .  .  .  .  .  .
--| rank 4  F1 F3 F5 F7  .  .  .  .  .  . B1---  . B3---  . B5---  . B7---
--| rank 5   . F1 F3 F5 F7  .  .  . B1---  . B3---  . B5---  . B7---  .  .
--| rank 6   .  . F1 F3 F5 F7 B1---  . B3---  . B5---  . B7---  .  .  .  .
--| rank 7   .  .  . F1 B1--- F3 B3--- F5 B5--- F7 B7---  .  .  .  .  .  .
local p = params { workers = 8, stages = 4, batches = 8, group = 4, sharded = false }
if p.workers % p.group ~= 0 then error("group = " .. p.group .. " must divide workers = " .. p.workers) end

local function h(s, b) return (p.group * b) % p.workers + s % p.group end
local function home(s)
  local ranks = {}
  for r = s % p.group, p.workers - 1, p.group do ranks[#ranks + 1] = r end
  return p.sharded and ranks or h(s, s)
end

return schedule {
  workers = p.workers, stages = p.stages, batches = p.batches,
  w = function(s, b, d) return home(s), h(s, b) end,
  n = oldest_batch_first,
  tune = { stages = { 2, 4, 8, 16 }, group = "divisors", sharded = { false, true } },
}
