local limits = { 4, 3, 2, 1 }

return schedule {
  workers = 4, stages = 4, batches = 4,
  w = function(s, b, d) return s, s end,
  cap = function(r) return limit[r] end,
}
