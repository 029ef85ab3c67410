return schedule {
  workers = 4, stages = 4, batches = 4,
  tensor = 2,
  w = function(s, b, d) return s, s end,
}
