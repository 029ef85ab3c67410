-- args: ../../../schedules/serial.lua --model FILE
return model { costs = {} }
