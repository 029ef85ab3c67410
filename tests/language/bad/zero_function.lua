return schedule {
  workers = 4, stages = 2, batches = 4,
  zero = function(s) return s > 0 and 1.5 or 1 end,
  w = function(s, b, d) return b, b end,
}
