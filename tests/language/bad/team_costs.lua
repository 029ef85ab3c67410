-- args: team_costs.lua --model ../../../schedules/models/vgg16.lua
return schedule {
  workers = 4, stages = 2, batches = 4,
  w = function(s, b, d) return { 2 * s, 2 * s + 1 }, { 2 * s, 2 * s + 1 } end,
}
