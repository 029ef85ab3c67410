return schedule {
  workers = 4, stages = 2, batches = 4,
  w = function(s, b, d) return d == "F" and 0 or { 0, 1, 2, 3 }, b end,
}
