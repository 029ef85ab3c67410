-- args: ../../../schedules/serial.lua --model FILE
return model {
  input = tokens { vocab = 16, context = 4, rows = 1 },
  layers = { embedding { width = 8 }, linear { width = 32 }, attention { heads = 4, kv_heads = 3 }, linear { width = 16 }, cross_entropy {} },
  optimizer = sgd { lr = 0.1 },
}
