-- args: ../../../schedules/serial.lua --model FILE
return model {
  input = relu {},
  layers = { linear { width = 4 }, mse {} },
  optimizer = sgd { lr = 0.1 },
}
