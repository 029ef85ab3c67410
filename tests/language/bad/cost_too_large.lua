-- The sum of three of these exceeds the largest double.
return schedule {
  workers = 1, stages = 1, batches = 4,
  w = function(s, b, d) return s, s end,
  cost = function(s, b, d) return b < 2 and 1e-20 or 1.7e308 end,
}
