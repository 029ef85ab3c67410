-- args: ../../../schedules/1f1b.lua -D workers=1 -D batches=1 -D tensor=2 --model FILE
return model {
  input = tokens { vocab = 256, context = 4, rows = 1 },
  layers = {
    embedding { width = 16 }, linear { width = 48, split = "columns" }, attention { heads = 4 }, swiglu {},
    linear { width = 256, split = "rows" }, cross_entropy {},
  },
  optimizer = sgd { lr = 0.5 },
}
