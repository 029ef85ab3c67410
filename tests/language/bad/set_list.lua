-- args: -D costs=2,x,1
local p = params { costs = { 1, 1 } }
return schedule {
  workers = 4, stages = 4, batches = 4,
  w = function(s, b, d) return s, s end,
}
