local all = { 0, 1, 2, 3 }

return schedule {
  workers = 4, stages = 4, batches = 3,
  w = function(s, b, d) return all, b end,
  source = function(s, b, d) return 3 end,
}
