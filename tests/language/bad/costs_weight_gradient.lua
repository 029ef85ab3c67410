-- args: ../../../schedules/serial.lua --model FILE
return model {
  costs = { { name = "conv", forward = 0.01, weight_gradient = 0.03, activation = 4096, weights = 8 } },
}
