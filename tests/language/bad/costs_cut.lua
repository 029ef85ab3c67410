-- args: ../../../schedules/serial.lua --model FILE -D stages=2
return model {
  costs = { { forward = 0.01, activation = 4096 }, { forward = 0.01, activation = 4096 } },
  cut = { 3 },
}
