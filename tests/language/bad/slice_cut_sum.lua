-- args: FILE --model ../../../schedules/models/integers.lua -D rows=9
return schedule {
  workers = 2, stages = 2, batches = 2, slices = 2,
  slice_cut = { 4, 8 },
  w = function(s, b, d) return s, s end,
}
