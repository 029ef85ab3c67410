-- args: ../../../schedules/serial.lua -D stages=1 --model FILE
return model {
  input = integers { features = 4, rows = 2 }, optimizer = sgd { lr = 0.1 },
  layers = { residual { stage { linear { width = 4 } } }, mse {} },
}
