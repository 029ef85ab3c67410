return schedule {
  workers = 1, stages = 1, batches = 1, slices = 2,
  w = function(s, b, d) return 0, 0 end,
  n = function(s, b, d, q) return d == "F" and q or -q end,
  cap = 1,
}
