return schedule {
  workers = 1, stages = 1, batches = 1, slices = 2,
  sequence = { { "0F0.0", "0F0.2" } },
}
