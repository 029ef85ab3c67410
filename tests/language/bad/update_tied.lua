-- args: update_tied.lua --model ../../../schedules/models/gpt2.lua
return schedule {
  workers = 4, stages = 4, batches = 8,
  w = function(s, b, d) return s, s end,
  update = "each",
}
