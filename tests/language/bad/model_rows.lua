-- args: ../../../schedules/serial.lua --model FILE
return model {
  input = integers { features = 4, rows = 1e9 },
  layers = { linear { width = 4 }, mse {} },
  optimizer = sgd { lr = 0.1 },
}
