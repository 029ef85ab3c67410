-- args: ../../../schedules/serial.lua -D stages=2 --model FILE
return model {
  input = integers { features = 4, rows = 2 }, optimizer = sgd { lr = 0.1 },
  layers = { stage { linear { width = 4 } }, linear { width = 4 }, mse {} },
}
