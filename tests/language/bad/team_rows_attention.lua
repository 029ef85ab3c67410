-- args: ../../../schedules/1f1b.lua -D workers=1 -D batches=1 -D tensor=4 --model FILE
return model {
  input = tokens { vocab = 16, context = 8, rows = 2 },
  layers = { embedding { width = 8, split = "rows" }, layernorm { split = "rows" }, linear { width = 24 }, attention { heads = 2 },
    linear { width = 16 }, cross_entropy {} },
  optimizer = sgd { lr = 0.5 },
}
