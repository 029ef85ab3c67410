-- args: ../../../schedules/1f1b.lua -D workers=1 -D batches=1 -D tensor=4 --model FILE
return model {
  input = integers { features = 8, rows = 6 },
  layers = { relu { split = "rows" }, linear { width = 8, split = "columns" }, linear { width = 8, split = "rows" }, mse {} },
  optimizer = sgd { lr = 0.5 },
}
