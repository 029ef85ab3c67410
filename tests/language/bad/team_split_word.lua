-- args: ../../../schedules/1f1b.lua -D workers=1 -D batches=1 --model FILE
return model {
  input = integers { features = 8, rows = 2 },
  layers = { linear { width = 8, split = "column" }, mse {} },
  optimizer = sgd { lr = 0.5 },
}
