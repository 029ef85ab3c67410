-- args: ../../../schedules/serial.lua --model FILE
return model {
  input = tokens { vocab = 256, context = 8, rows = 2 },
  layers = { embedding { width = 4 }, unembedding { width = 256 }, cross_entropy {} },
  optimizer = sgd { lr = 0.1 },
}
