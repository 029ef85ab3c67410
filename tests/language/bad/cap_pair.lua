return schedule { workers = 1, stages = 1, batches = 2, cap = 1,
  sequence = { { "0F0+0F1", "0B0", "0B1" } } }
