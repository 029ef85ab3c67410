return schedule {
  workers = 4, stages = 2, batches = 4,
  w = function(s, b, d) return b, b == 2 and { 0, 1, 2 } or { 0, 1 } end,
}
