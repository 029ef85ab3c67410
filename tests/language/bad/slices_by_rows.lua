-- args: FILE --model ../../../schedules/models/integers.lua -D rows=8 -D parallel=sequence
return schedule {
  workers = 2, stages = 1, batches = 2, slices = 2,
  w = function(s, b, d) return { 0, 1 }, { 0, 1 } end,
}
