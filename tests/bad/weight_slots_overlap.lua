-- Jobs of two stages overlap away from home, where there is room for one stage's weights.
return schedule {
  workers = 2, stages = 2, batches = 2,
  sequence = { { "0F0", "1F0", "0F1+1B0", "1F1", "1B1", "0B0", "0B1" }, {} },
  w = function(s, b, d) return 1 end,
  weight_slots = 1,
}
