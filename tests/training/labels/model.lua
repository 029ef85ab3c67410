-- A bigram model with known weights, whose targets come from a file of labels.
local p = params { labels = true, rows = 2, lr = 1.0, unit = false, mean = false }
local head = unit { source = "../../models/units/head.c", width = 1, parameters = { weight = { 8, 16 } }, stash = 4 * 16 * 6 * p.rows, side = { "targets" } }
return model {
  input = tokens { vocab = 16, context = 6, rows = p.rows, labels = p.labels },
  layers = {
    embedding { width = 8, positions = false, hf = "table" },
    linear { width = 8, bias = false, hf = "inner", split = "columns" },
    linear { width = 8, bias = false, hf = "outer", split = "rows" },
    p.unit and head or p.mean and linear { width = 1, bias = false, hf = "one" } or linear { width = 16, bias = false, hf = "head", split = "columns" },
    (p.unit or p.mean) and mean_loss {} or cross_entropy {},
  },
  optimizer = sgd { lr = p.lr },
}
