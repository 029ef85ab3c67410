-- args: ../../../schedules/serial.lua -D tensor=2 --model FILE
return model {
  input = tokens { vocab = 16, context = 4, rows = 1 },
  layers = { embedding { width = 8 }, layernorm {}, unembedding { split = "columns" }, cross_entropy {} },
  optimizer = sgd { lr = 0.5 },
  cut = { 2, 3, 4 },
}
