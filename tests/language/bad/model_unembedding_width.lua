-- args: ../../../schedules/serial.lua -D stages=2 --model FILE
return model {
  input = tokens { vocab = 256, context = 8, rows = 2 },
  layers = { embedding { width = 4 }, linear { width = 6 }, unembedding {}, cross_entropy {} },
  optimizer = sgd { lr = 0.1 },
}
