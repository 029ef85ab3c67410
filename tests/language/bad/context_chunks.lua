-- args: ../../../schedules/1f1b.lua -D tensor=3 -D workers=1 -D batches=1 --model FILE
return model {
  input = tokens { vocab = 256, context = 8, rows = 3 },
  layers = { embedding { width = 8 }, linear { width = 24 }, attention { heads = 2, split = "rows" }, linear { width = 256 },
    cross_entropy {} },
  optimizer = sgd { lr = 0.5 },
}
