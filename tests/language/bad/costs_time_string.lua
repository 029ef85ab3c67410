-- args: ../../../schedules/serial.lua --model FILE
return model {
  costs = { { name = "conv", forward = "10 ms", activation = 4096 } },
}
