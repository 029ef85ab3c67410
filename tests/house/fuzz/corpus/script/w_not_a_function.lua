return schedule {
  workers = 4, stages = 4, batches = 4,
  w = 3,
}
