-- args: ../../../schedules/serial.lua --model FILE
return model {
  input = tokens { vocab = 16, context = 4, rows = 1 },
  layers = {
    embedding { width = 4 },
    residual { moe { experts = 2, top = 1, width = 8, split = "rows" } },
    linear { width = 16 }, cross_entropy {},
  },
  optimizer = sgd { lr = 0.1 },
}
