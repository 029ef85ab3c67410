-- args: ../../../schedules/serial.lua -D stages=1 --model FILE
return model {
  input = tokens { vocab = 16, context = 4, rows = 1 },
  layers = { embedding { width = 8 }, unembedding { split = "rows" }, cross_entropy {} },
  optimizer = sgd { lr = 0.5 },
}
