-- args: ../../../schedules/serial.lua --model FILE
return model {
  input = integers { features = 4, rows = 2 },
  layers = { linear { width = 4 }, mse {} },
  optimizer = sgd { lr = 0.1 },
  precision = "fp16",
}
