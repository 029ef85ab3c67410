return schedule {
  workers = 4, stages = 4, batches = 8,
  w = function(s, b, d) return 0, s end,
  update = "each",
  source = function(s, b, d) return nil end,
}
