return schedule {
  workers = 4, stages = 2, batches = 4,
  w = function(s, b, d) return { 0, 1, 2 }, { 0, 1 } end,
}
