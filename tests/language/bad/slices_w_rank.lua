return schedule {
  workers = 2, stages = 2, batches = 2, slices = 3,
  w = function(s, b, d, q) return s, s + q end,
}
