-- args: ../../../schedules/serial.lua --model FILE
return model {
  input = tokens { vocab = 8, context = 4, rows = 1 },
  layers = { embedding { width = 12 }, linear { width = 12 }, headnorm {}, relu {}, attention { heads = 2 }, linear { width = 8 },
    cross_entropy {} },
  optimizer = sgd { lr = 0.1 },
}
