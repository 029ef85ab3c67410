-- args: update_without_period.lua -D batches=1000000
local p = params { batches = 8 }
return schedule {
  workers = 2, stages = 2, batches = p.batches,
  w = function(s, b, d) return s, s end,
  cost = function(s, b, d) return 1 + (b * b * 0.6180339887) % 1 end,
  n = function(s, b, d) return d == "F" and 1 or 0 end,
  update = "each",
}
