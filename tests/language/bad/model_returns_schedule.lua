-- args: ../../../schedules/serial.lua --model FILE
return linear { width = 4 }
