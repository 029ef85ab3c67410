return schedule {
  workers = 4, stages = 4, batches = 8,
  w = function(s, b, d) return s, s end,
  n = function(s, b, d) return d == "U" and math.huge or b end,
  update = "each",
}
