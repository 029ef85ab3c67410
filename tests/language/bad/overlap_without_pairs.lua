-- An overlap without jobs that overlap would have no effect.
return schedule {
  workers = 1, stages = 1, batches = 1,
  sequence = { { "0F0", "0B0" } },
  overlap = 1,
}
