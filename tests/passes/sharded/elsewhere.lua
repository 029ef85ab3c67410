-- Each stage's weights are sharded over all ranks, and only one rank computes it: breadth first, so that each rank gathers
-- V chunks 2 V - 1 times.
local p = params { workers = 4, batches = 8, chunks = 4 }
local stages, all = p.workers * p.chunks, {}
for r = 0, p.workers - 1 do all[r + 1] = r end

return schedule {
  workers = p.workers, stages = stages, batches = p.batches,
  w = function(s, b, d) return all, s % p.workers end,
  n = function(s, b, d) return d == "F" and s or 2 * stages - s end, order = "strict",
  weight_slots = 1,
}
