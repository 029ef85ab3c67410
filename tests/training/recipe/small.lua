-- A GPT of two layers, with any optimizer: as small as possible with wide, tall and square matrices.
local p = params { optimizer = "adamw", nesterov = false, clip = 0.0, post_validation = false }
local of = {
  sgd = sgd { lr = 0.1, clip = p.clip, post_validation = p.post_validation },
  momentum = momentum { lr = 0.05, nesterov = p.nesterov, schedule = "linear", warmup = 2, clip = p.clip, post_validation = p.post_validation },
  adamw = adamw { lr = 0.01, decay = 0.1, schedule = "cosine", warmup = 2, final = 0.1, clip = p.clip, post_validation = p.post_validation },
  muon = muon { lr = 0.02, adam_lr = 0.003, decay = 0.1, schedule = "cosine", warmup = 2, final = 0.1, clip = p.clip, post_validation = p.post_validation },
}
local layers = { embedding { width = 16 } }
for _ = 1, 4 do
  layers[#layers + 1] = residual { layernorm {}, linear { width = 48 }, attention { heads = 2 }, linear { width = 16 } }
end
layers[#layers + 1] = layernorm {}
layers[#layers + 1] = linear { width = 256 }
layers[#layers + 1] = cross_entropy {}
return model { input = tokens { vocab = 256, context = 16, rows = 2 }, layers = layers, optimizer = of[p.optimizer] }
