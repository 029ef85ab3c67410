-- args: ../../../schedules/serial.lua --model FILE
return model {
  costs = { { name = "conv", forward = 0.01, backward = -0.02, activation = 4096 } },
}
