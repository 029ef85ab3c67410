-- args: ../../../schedules/serial.lua --model FILE
local order = backward_first
return schedule { workers = 1, stages = 1, batches = 1, n = order }
