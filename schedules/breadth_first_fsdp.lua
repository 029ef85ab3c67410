-- Breadth-first times FSDP: a looped pipeline with replicas, whose ranks of one stage cut its weights among them. All
-- microbatches go through a chunk before the next, so that a chunk is gathered once for all of them: 2 V - min(k, V) gathers
-- of V chunks with k slots, whatever the number of microbatches.
-- Lamy-Poirier 2022, "Breadth-First Pipeline Parallelism", section 4.2.
--
-- pianola show schedules/breadth_first_fsdp.lua
--| time    0         5         10        15        20        25        30        35
--| rank 0  F0F2F4F6F0F2F4F6F0F2F4F6. . . B0- B2- B4- B6- B0- B2- B4- B6- B0- B2- B4- B6-
--| rank 1  . F0F2F4F6F0F2F4F6F0F2F4F6B0- B2- B4- B6- B0- B2- B4- B6- B0- B2- B4- B6- . .
--| rank 2  F1F3F5F7F1F3F5F7F1F3F5F7. . . B1- B3- B5- B7- B1- B3- B5- B7- B1- B3- B5- B7-
--| rank 3  . F1F3F5F7F1F3F5F7F1F3F5F7B1- B3- B5- B7- B1- B3- B5- B7- B1- B3- B5- B7- . .
local p = params { depth = 2, replicas = 2, chunks = 3, batches = 8, slots = 1 }
local workers = params { workers = p.depth * p.replicas }.workers
if workers ~= p.depth * p.replicas then error("workers = " .. workers .. " must be depth * replicas") end
local stages = params { stages = p.depth * p.chunks }.stages
if stages ~= p.depth * p.chunks then error("stages = " .. stages .. " must be depth * chunks") end
local list = {}
for k = 0, p.depth - 1 do
  list[k] = {}
  for i = 0, p.replicas - 1 do list[k][i + 1] = i * p.depth + k end
end

return schedule {
  workers = workers, stages = stages, batches = p.batches,
  w = function(s, b, d) return list[s % p.depth], b % p.replicas * p.depth + s % p.depth end,
  n = function(s, b, d) return d == "F" and s or 2 * stages - s end, order = "strict",
  weight_slots = p.slots,
}
