-- args: ../../../schedules/serial.lua -D tensor=2 --model FILE
return model {
  input = tokens { vocab = 16, context = 4, rows = 3 },
  layers = {
    embedding { width = 4 },
    residual { moe { experts = 2, top = 1, width = 8, split = "experts" } },
    linear { width = 16 }, cross_entropy {},
  },
  optimizer = sgd { lr = 0.1 },
}
