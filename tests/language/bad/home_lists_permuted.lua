return schedule {
  workers = 4, stages = 2, batches = 4,
  w = function(s, b, d) return b < 2 and { 0, 1 } or { 1, 0 }, b end,
}
