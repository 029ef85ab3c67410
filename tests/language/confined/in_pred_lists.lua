local all = {}
for b = 0, 999999 do all[b + 1] = { 0, b % 1000, "F" } end
return schedule {
  workers = 1, stages = 1, batches = 1000,
  w = function(s, b, d) return 0, 0 end,
  pred = function() return all end,
}
