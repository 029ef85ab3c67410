-- args: --model ../../../schedules/models/integers.lua
return schedule {
  workers = 2, stages = 3, batches = 1,
  w = function(s, b, d) if s == 1 then return 0, 0 end return { 0, 1 }, { 0, 1 } end,
  pred = function(s, b, d)
    if d == "F" then return s > 0 and { { s - 1, b, "F" } } or {} end
    return { { s, b, "F" }, s == 1 and { 2, b, "B" } or nil }
  end,
}
