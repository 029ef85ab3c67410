-- args: ../../../schedules/serial.lua --model FILE
return cluster { flops = 1e12 }
