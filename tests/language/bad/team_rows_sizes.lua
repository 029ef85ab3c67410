-- args: FILE --model ../../../schedules/models/integers.lua -D rows=4 -D parallel=sequence
return schedule {
  workers = 4, stages = 2, batches = 2,
  w = function(s, b, d) local team = s == 0 and { 0, 1 } or { 0, 1, 2, 3 } return team, team end,
}
