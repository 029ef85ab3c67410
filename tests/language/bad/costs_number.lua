-- args: ../../../schedules/serial.lua --model FILE
return model { costs = 0.01 }
