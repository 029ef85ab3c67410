-- args: ../../../schedules/serial.lua --model FILE
return model {
  input = tokens { vocab = 256, context = 8, rows = 1 },
  layers = {
    embedding { width = 8, frozen = { "token" }, data = "weights.safetensors", hf = "table" },
    linear { width = 256 },
    cross_entropy {},
  },
  optimizer = sgd { lr = 0.5 },
}
