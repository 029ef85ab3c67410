return schedule {
  workers = 3, stages = 1, batches = 6,
  w = function(s, b, d) return b % 3, b % 3 end,
  update = 2,
}
