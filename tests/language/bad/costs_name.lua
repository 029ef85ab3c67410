-- args: ../../../schedules/serial.lua --model FILE
return model {
  costs = { { name = 7, forward = 0.01, activation = 4096 } },
}
