-- args: w_no_home_of_parameters.lua --model ../../../schedules/models/gpt.lua
return schedule {
  workers = 2, stages = 3, batches = 2,
  w = function(s, b, d)
    if s == 1 then return nil, 1 end
    return s // 2, s // 2
  end,
}
