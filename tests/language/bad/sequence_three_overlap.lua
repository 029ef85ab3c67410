-- Two jobs may overlap, not three.
return schedule {
  workers = 1, stages = 1, batches = 3,
  sequence = { { "0F0", "0F1", "0F2+0B0+0B1", "0B2" } },
}
