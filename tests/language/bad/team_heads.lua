-- args: ../../../schedules/1f1b.lua -D workers=1 -D batches=1 -D tensor=3 --model FILE
return model {
  input = tokens { vocab = 256, context = 8, rows = 1 },
  layers = { embedding { width = 8 }, linear { width = 24, split = "columns" }, attention { heads = 4 },
    linear { width = 256, split = "rows" }, cross_entropy {} },
  optimizer = sgd { lr = 0.5 },
}
