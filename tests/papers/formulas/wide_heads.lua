-- Heads of 160 columns in the second of two attentions: the host supports them, the CUDA layers do not.
return model {
  input = tokens { vocab = 256, context = 4, rows = 1 },
  layers = {
    embedding { width = 576 },
    residual { linear { width = 3 * 576 }, attention { heads = 9 }, linear { width = 576 } },
    linear { width = 3 * 576 }, linear { width = 3 * 640 }, attention { heads = 4 }, linear { width = 256 },
    cross_entropy {},
  },
  optimizer = sgd { lr = 0.1 },
}
