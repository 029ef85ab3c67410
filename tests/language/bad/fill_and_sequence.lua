return schedule {
  workers = 1, stages = 1, batches = 1,
  sequence = { { "0F0", "0B0" } },
  fill = function(s, b, d) return false end,
}
