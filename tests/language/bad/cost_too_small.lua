return schedule {
  workers = 1, stages = 1, batches = 2,
  w = function(s, b, d) return s, s end,
  cost = function(s, b, d) return 1e-300 end,
}
