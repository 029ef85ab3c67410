return schedule {
  workers = 1, stages = 1, batches = 2,
  sequence = { { "0F0", "0B0", "0F1", "0B1" } },
  update = "each",
}
