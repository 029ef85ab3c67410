-- A bigram model with known weights, whose targets come from a file of labels.
local p = params { labels = true, rows = 2, lr = 1.0 }
return model {
  input = tokens { vocab = 16, context = 6, rows = p.rows, labels = p.labels },
  layers = {
    embedding { width = 8, positions = false, hf = "table" },
    linear { width = 8, bias = false, hf = "inner", split = "columns" },
    linear { width = 8, bias = false, hf = "outer", split = "rows" },
    linear { width = 16, bias = false, hf = "head", split = "columns" },
    cross_entropy {},
  },
  optimizer = sgd { lr = p.lr },
}
