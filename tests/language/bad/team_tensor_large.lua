return schedule {
  workers = 64, stages = 64, batches = 4, tensor = 65,
  w = function(s, b, d) return s, s end,
}
