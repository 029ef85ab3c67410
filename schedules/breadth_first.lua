-- Breadth first: looped GPipe, all microbatches through a chunk of stages before the next chunk.
-- Lamy-Poirier 2022, "Breadth-First Pipeline Parallelism", section 4: rank r has the stages r, r + P, ...; its bubble
-- is GPipe's divided by the number of chunks, (P - 1) / (M V), and every activation lives until its backward.
--
-- pianola show schedules/breadth_first.lua
--| time    0         10        20        30        40        50
--| rank 0  FFFFFFFFFFFFFFFF.........B0B1B2B3B4B5B6B7B0B1B2B3B4B5B6B7
--| rank 1  .FFFFFFFFFFFFFFFF......B0B1B2B3B4B5B6B7B0B1B2B3B4B5B6B7..
--| rank 2  ..FFFFFFFFFFFFFFFF...B0B1B2B3B4B5B6B7B0B1B2B3B4B5B6B7....
--| rank 3  ...FFFFFFFFFFFFFFFFB0B1B2B3B4B5B6B7B0B1B2B3B4B5B6B7......
local p = params { workers = 4, batches = 8, chunks = 2 }
if p.chunks < 1 then error("chunks = " .. p.chunks .. ": each rank has at least one") end
local stages = p.workers * p.chunks

return schedule {
  workers = p.workers, stages = stages, batches = p.batches,
  w = function(s, b, d) return s % p.workers, s % p.workers end,
  n = function(s, b, d) return d == "F" and s or 2 * stages - s end, order = "strict",
  bubble = p.batches >= p.workers and (p.workers - 1) / (p.chunks * p.batches + p.workers - 1) or nil,
  tune = { chunks = { 2, 4, 8 } },
}
