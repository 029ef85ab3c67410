-- Cuckoo: a pipeline in which late ranks take the last backwards of early ones: less memory, more time.
-- Late ranks hold activations only for a short time. The stash goes to the late rank, and the gradient comes back to
-- the stage's own rank.
-- Rahimi 2025, "Unifying Parallelization Schemes to Train Deep Nets", the simulator's notebook, "Cuckoo Scheduling",
-- where workers = 64 and batches = 128. Backwards of stages below cutoff, of microbatches from first on, move to
-- ranks from cutoff + gap on, closer together towards the end.
--
-- pianola show schedules/cuckoo.lua
--| time    0         5         10        15        20        25        30        35
--| rank 0  F0F1F2F3F4F5F6F7. . B0- . B1- . B2- . B3- . B4- . B5- . . . . . . . . . . . .
--| rank 1  . F0F1F2F3F4F5F6B0- F7B1- . B2- . B3- . B4- . B5- . . . . . . . . . . . . . .
--| rank 2  . . F0F1F2F3B0- F4B1- F5B2- F6B3- F7B4- . B5- . . . . . . . . . . . . . . . .
--| rank 3  . . . F0B0- F1B1- F2B2- F3B3- F4B4- F5B5- F6B6- B6- B6- B6- F7B7- B7- B7- B7-
local p = params { workers = 4, batches = 8 }
local P = p.workers
local q = params { cutoff = P // 2 + 1, gap = 10 * P // 64, first = 101 * p.batches // 128 }
local nest = q.cutoff + q.gap                              -- the first rank that backwards move to
if q.cutoff < 1 or q.gap < 0 or nest >= P then
  error("cutoff = " .. q.cutoff .. " and gap = " .. q.gap .. " leave none of " .. P .. " ranks to move backwards to")
end

return schedule {
  workers = P, stages = P, batches = p.batches,
  w = function(s, b, d)
    if d == "F" or s >= q.cutoff or b < q.first then return s, s end
    return s, nest + math.floor(math.sqrt(s / q.cutoff) * (P - nest))
  end,
  n = oldest_batch_first,
}
