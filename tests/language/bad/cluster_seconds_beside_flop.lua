-- args: ../../../schedules/gpipe.lua --model ../../../schedules/models/integers.lua --cluster FILE
-- Latencies are in seconds, jobs would be in FLOP.
return cluster {
  memory = 1e9,
  link = function(src, dst) return 1e-5, 1e10 end,
}
