-- args: ../../../schedules/serial.lua --model FILE
return model {
  input = integers { features = 4, rows = 2 },
  layers = { linear { width = 0 }, mse {} },
  optimizer = sgd { lr = 0.1 },
}
