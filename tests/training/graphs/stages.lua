-- tests/training/graphs/chain.lua as stages. The additional relus change nothing, since their inputs are not negative.
-- They give every linear layer the same index as in the chain, by which its initial weights are drawn.
return model {
  input = integers { features = 16, rows = 4 },
  layers = {
    stage { linear { width = 16 }, relu {}, relu {} },
    stage { linear { width = 16 }, relu {} },
    stage { from = { 0, 1 }, relu {}, mse {} },
  },
  optimizer = sgd { lr = 0.25 },
}
