return schedule {
  workers = 2, stages = 2, batches = 2,
  slice_cut = { 4, 4 },
  w = function(s, b, d) return s, s end,
}
