-- args: team_orders.lua --model ../../../schedules/models/gpt.lua -D layers=1 -D width=16 -D context=8 -D rows=2
local turns = { { 0, 1 }, { 0, 2 } }   -- Member 1's gradient comes from two ranks, member 0's from one.
return schedule {
  workers = 3, stages = 1, batches = 3,
  w = function(s, b, d) return { 0, 1 }, turns[b % 2 + 1] end,
}
