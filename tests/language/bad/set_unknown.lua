-- args: -D wrokers=8
local p = params { workers = 4, batches = 4 }
return schedule {
  workers = 4, stages = 4, batches = 4,
  w = function(s, b, d) return s, s end,
}
