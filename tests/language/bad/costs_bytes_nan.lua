-- args: ../../../schedules/serial.lua --model FILE
return model {
  costs = { { name = "conv", forward = 0.01, activation = 0 / 0 } },
}
