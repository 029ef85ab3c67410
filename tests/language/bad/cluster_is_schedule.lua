-- args: ../../../schedules/serial.lua --cluster FILE
return schedule { workers = 1, stages = 1, batches = 1, n = backward_first }
