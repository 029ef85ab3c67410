-- args: ../../../schedules/1f1b.lua -D workers=1 -D batches=1 -D tensor=2 --model FILE
return model {
  input = integers { features = 8, rows = 2 },
  layers = { linear { width = 8, split = "columns" }, linear { width = 8 }, mse {} },
  optimizer = sgd { lr = 0.5 },
}
