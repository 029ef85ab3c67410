return schedule {
  workers = 2, stages = 2, batches = 4,
  w = function(s, b, d) return s, s end,
  n = function(s, b, d) return d == "U" and b or d == "F" and 10 * b + 1 or 10 * b + 2 end, order = "strict",
  update = "each",
}
