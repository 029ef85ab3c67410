-- Serial: one rank does everything, one microbatch after the other: the reference for every schedule.
--
-- pianola show schedules/serial.lua
--| time    0         10        20        30        40        50        60        70        80        90
--| rank 0  FFFFB0B0B0B0FFFFB1B1B1B1FFFFB2B2B2B2FFFFB3B3B3B3FFFFB4B4B4B4FFFFB5B5B5B5FFFFB6B6B6B6FFFFB7B7B7B7
local p = params { workers = 1, stages = 4, batches = 8 }
if p.workers ~= 1 then error("serial runs on one rank; workers = " .. p.workers .. " needs another schedule") end

return schedule {
  workers = p.workers, stages = p.stages, batches = p.batches,
  w = function(s, b, d) return 0, 0 end,
  n = oldest_batch_first,
}
