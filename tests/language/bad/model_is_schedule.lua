-- args: ../../../schedules/serial.lua --model FILE
return schedule {
  workers = 4, stages = 4, batches = 4,
  w = function(s, b, d) return s, s end,
}
