-- args: ../../../schedules/serial.lua --model FILE
return model {
  costs = { { forward = 0.01, activation = 4096 } },
}
