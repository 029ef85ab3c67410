return schedule {
  workers = 4, stages = 4, batches = 8,
  w = function(s, b, d) return 0, s end,
  update = "each",
  grad_slots = 2,
}
