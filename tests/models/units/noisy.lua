-- A model with units that read tokens and a random number.
local noisy = unit { source = { "noisy.c", "noisy.cu" }, keeps = "", side = { "tokens", "seed" } }

return model {
  input = tokens { vocab = 16, context = 4, rows = 3 },
  layers = { embedding { width = 8 }, noisy, linear { width = 8 }, noisy, linear { width = 16 }, cross_entropy {} },
  optimizer = sgd { lr = 0.1 },
}
