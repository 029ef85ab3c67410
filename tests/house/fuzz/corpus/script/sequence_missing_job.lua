return schedule {
  workers = 2, stages = 2, batches = 1,
  sequence = { { "0F0", "0B0" }, { "1F0" } },
}
