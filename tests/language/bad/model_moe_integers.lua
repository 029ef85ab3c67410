-- args: ../../../schedules/serial.lua --model FILE
return model {
  input = integers { features = 4, rows = 2 },
  layers = { moe { experts = 2, width = 8 }, linear { width = 4 }, mse {} },
  optimizer = sgd { lr = 0.1 },
}
