return schedule {
  workers = 2, stages = 2, batches = 2,
  slices = 0,
  w = function(s, b, d) return s, s end,
}
