-- One rank does everything, one microbatch after the other: the result that every other schedule must equal.
--
-- (timeline: see generated/serial)
local p = params { workers = 1, stages = 4, batches = 8 }
if p.workers ~= 1 then error("serial runs on one rank; workers = " .. p.workers .. " needs another schedule") end

return schedule {
  workers = p.workers, stages = p.stages, batches = p.batches,
  w = function(s, b, d) return 0, 0 end,
  n = oldest_batch_first,
}
