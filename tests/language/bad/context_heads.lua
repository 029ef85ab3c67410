-- args: ../../../schedules/1f1b.lua -D tensor=4 -D workers=1 -D batches=1 --model FILE
return model {
  input = tokens { vocab = 256, context = 8, rows = 1 },
  layers = { embedding { width = 8 }, linear { width = 16 }, attention { heads = 4, kv_heads = 2, split = "heads" },
    linear { width = 256 }, cross_entropy {} },
  optimizer = sgd { lr = 0.5 },
}
