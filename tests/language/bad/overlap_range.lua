-- At most the whole shorter job can be hidden.
return schedule {
  workers = 1, stages = 1, batches = 2,
  sequence = { { "0F0", "0F1+0B0", "0B1" } },
  overlap = 2,
}
