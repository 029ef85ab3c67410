-- args: ../../../schedules/serial.lua --model FILE
return model {
  input = tokens { vocab = 16, context = 1024, rows = 64 },
  layers = {
    embedding { width = 4 },
    residual { moe { experts = 65536, top = 65536, width = 8 } },
    linear { width = 16 }, cross_entropy {},
  },
  optimizer = sgd { lr = 0.1 },
}
