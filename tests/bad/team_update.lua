-- args: team_update.lua -D tensor=2
return schedule {
  workers = 2, stages = 2, batches = 4,
  w = function(s, b, d) return s, s end,
  update = "each",
}
