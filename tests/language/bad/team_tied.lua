-- args: team_tied.lua --model ../../../schedules/models/gpt.lua -D tied=true
return schedule {
  workers = 4, stages = 2, batches = 4,
  w = function(s, b, d)
    local team = s == 0 and { 0, 1 } or { 0, 1, 2, 3 }
    return team, team
  end,
}
