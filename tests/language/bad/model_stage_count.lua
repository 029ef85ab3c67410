-- args: ../../../schedules/serial.lua -D stages=4 --model FILE
return model {
  input = integers { features = 4, rows = 2 }, optimizer = sgd { lr = 0.1 },
  layers = { stage { linear { width = 4 } }, stage { linear { width = 4 }, mse {} } },
}
