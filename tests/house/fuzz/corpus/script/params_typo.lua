local p = params { workers = 4, stages = 4 }
return schedule {
  workers = p.workers, stages = p.stgaes, batches = 4,
  w = function(s, b, d) return s, s end,
}
