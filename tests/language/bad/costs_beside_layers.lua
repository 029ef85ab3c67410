-- args: ../../../schedules/serial.lua --model FILE
return model {
  input = integers { features = 4, rows = 2 },
  costs = { { name = "conv", forward = 0.01, activation = 4096 } },
}
