-- args: ../../../schedules/serial.lua --model FILE
-- Without a name, the error gives the layer's number.
return model {
  costs = { { forward = 0.01, activation = 4096 }, { forward = 0.01 } },
}
