return schedule {
  workers = 1, stages = 1, batches = 2, slices = 2,
  w = function(s, b, d) return 0, 0 end,
  pred = function(s, b, d, q) return { { 0, b, "F" } } end,
}
