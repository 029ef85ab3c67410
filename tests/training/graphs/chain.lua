-- A residual block in a chain of layers. tests/training/graphs/stages.lua is the same function as a graph of stages.
return model {
  input = integers { features = 16, rows = 4 },
  layers = { linear { width = 16 }, relu {}, residual { linear { width = 16 }, relu {} }, mse {} },
  optimizer = sgd { lr = 0.25 },
}
