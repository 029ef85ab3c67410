return schedule {
  workers = 4, stages = 4, batches = 8,
  w = function(s, b, d) return s, s end,
  cost = function(s, b, d) return d == "U" and -1 or 1 end,
  update = "each",
}
