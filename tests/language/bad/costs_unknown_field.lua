-- args: ../../../schedules/serial.lua --model FILE
return model {
  costs = {
    { name = "conv", forward = 0.01, activation = 4096 },
    { name = "fc", foward = 0.01, activation = 4096 },
  },
}
