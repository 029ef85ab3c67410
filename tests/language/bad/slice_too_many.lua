-- args: FILE --model ../../../schedules/models/integers.lua -D rows=2
return schedule {
  workers = 2, stages = 2, batches = 2, slices = 3,
  w = function(s, b, d) return s, s end,
}
