return schedule {
  workers = 2, stages = 2, batches = 2, slices = 2,
  w = function(s, b, d, q) return s, s end,
  split_backward = function(s, b, q) return q end,
}
