return schedule {
  workers = 4, stages = 4, batches = 8,
  w = function(s, b, d) return b % 4, b % 4 end,
  update = 4,
  zero = function(s) return 1 end,
}
