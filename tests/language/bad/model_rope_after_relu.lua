-- args: ../../../schedules/serial.lua --model FILE
return model {
  input = tokens { vocab = 16, context = 4, rows = 1 },
  layers = { embedding { width = 24 }, relu {}, attention { heads = 4, rope = 10000 }, linear { width = 16 }, cross_entropy {} },
  optimizer = sgd { lr = 0.1 },
}
