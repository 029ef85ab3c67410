-- tests/training/graphs/chain.lua as stages: the relus more change nothing, since what they get is not negative, and give every linear
-- the place in the list that it has there, by which its first weights are drawn.
return model {
  input = integers { features = 16, rows = 4 },
  layers = {
    stage { linear { width = 16 }, relu {}, relu {} },
    stage { linear { width = 16 }, relu {} },
    stage { from = { 0, 1 }, relu {}, mse {} },
  },
  optimizer = sgd { lr = 0.25 },
}
