local places = { 0, 1, 2 }

return schedule {
  workers = 4, stages = 4, batches = 4,
  w = function(s, b, d) return s, place[b] end,
}
