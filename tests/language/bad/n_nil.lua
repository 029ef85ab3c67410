return schedule {
  workers = 4, stages = 4, batches = 4,
  w = function(s, b, d) return s, s end,
  n = function(s, b, d) if d == "F" then return b end end,
}
