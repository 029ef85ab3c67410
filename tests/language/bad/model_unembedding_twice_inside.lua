-- args: ../../../schedules/serial.lua --model FILE
return model {
  input = tokens { vocab = 256, context = 8, rows = 2 },
  layers = { embedding { width = 256 }, residual { unembedding {} },
             unembedding {}, cross_entropy {} },
  optimizer = sgd { lr = 0.1 },
}
