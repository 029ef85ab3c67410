-- Breadth-first times FSDP: a looped pipeline whose replicas shard each stage's weights.
-- All microbatches go through a chunk before the next, so that a chunk is gathered once for all of them: 2 V - min(k, V)
-- gathers of V chunks with k slots, whatever the number of microbatches.
-- Lamy-Poirier 2022, "Breadth-First Pipeline Parallelism", section 4.2.
--
-- pianola show schedules/breadth_first_fsdp.lua
--| time    0         5         10        15        20        25        30        35
--| rank 0  F0F2F4F6F0F2F4F6F0F2F4F6. . . B0- B2- B4- B6- B0- B2- B4- B6- B0- B2- B4- B6-
--| rank 1  . F0F2F4F6F0F2F4F6F0F2F4F6B0- B2- B4- B6- B0- B2- B4- B6- B0- B2- B4- B6- . .
--| rank 2  F1F3F5F7F1F3F5F7F1F3F5F7. . . B1- B3- B5- B7- B1- B3- B5- B7- B1- B3- B5- B7-
--| rank 3  . F1F3F5F7F1F3F5F7F1F3F5F7B1- B3- B5- B7- B1- B3- B5- B7- B1- B3- B5- B7- . .
local p = params { workers = 4, replicas = 2, chunks = 3, batches = 8, slots = 1 }
if p.workers % p.replicas ~= 0 then error("replicas = " .. p.replicas .. " must divide workers = " .. p.workers) end
local depth = p.workers // p.replicas
local stages = params { stages = depth * p.chunks }.stages
if stages ~= depth * p.chunks then error("stages = " .. stages .. " must be " .. depth .. " * chunks") end
local list = {}
for k = 0, depth - 1 do
  list[k] = {}
  for i = 0, p.replicas - 1 do list[k][i + 1] = i * depth + k end
end

return schedule {
  workers = p.workers, stages = stages, batches = p.batches,
  w = function(s, b, d) return list[s % depth], b % p.replicas * depth + s % depth end,
  n = function(s, b, d) return d == "F" and s or 2 * stages - s end, order = "strict",
  weight_slots = p.slots,
  tune = { replicas = "divisors", chunks = { 1, 2, 4, 8 }, slots = { 1, 2 } },
}
