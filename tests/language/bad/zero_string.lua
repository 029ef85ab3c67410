return schedule {
  workers = 4, stages = 2, batches = 4,
  zero = "1",
  w = function(s, b, d) return b, b end,
}
