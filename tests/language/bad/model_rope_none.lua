-- args: ../../../schedules/serial.lua --model FILE
return model {
  input = tokens { vocab = 16, context = 4, rows = 1 },
  layers = {
    embedding { width = 8 }, linear { width = 24 }, attention { heads = 2, rope_factor = 2 }, linear { width = 16 },
    cross_entropy {},
  },
  optimizer = sgd { lr = 0.1 },
}
