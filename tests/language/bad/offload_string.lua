return schedule {
  workers = 4, stages = 2, batches = 4,
  w = function(s, b, d) return b, b end,
  offload = "always",
}
