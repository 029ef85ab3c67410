-- args: ../../../schedules/serial.lua --model FILE
return model {
  costs = { { name = "conv", activation = 4096 } },
}
