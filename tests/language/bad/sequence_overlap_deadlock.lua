-- A job of another rank must run between the two jobs that should overlap.
return schedule {
  workers = 2, stages = 2, batches = 2,
  sequence = { { "0F0", "0F1+0B0", "0B1" }, { "1F0", "1F1", "1B0", "1B1" } },
}
