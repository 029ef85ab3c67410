return schedule {
  workers = 4, stages = 4, batches = 8,
  w = function(s, b, d) return { 0, 1, 2, 3 }, s end,
  update = "each",
}
