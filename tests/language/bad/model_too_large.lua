-- args: ../../../schedules/gpipe.lua --model FILE -D workers=1 -D batches=300000
-- Each microbatch keeps 4 TiB, together more than 2^60 bytes, although each number is within a model's limits.
return model {
  input = integers { features = 1 << 20, rows = 1 << 20 },
  layers = { linear { width = 1 << 20 }, mse {} },
  optimizer = sgd { lr = 0.1 },
}
