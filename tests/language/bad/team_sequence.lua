return schedule {
  workers = 2, stages = 1, batches = 1,
  w = function(s, b, d) return 0, { 0, 1 } end,
  sequence = { { "0F0", "0B0" }, {} },
}
