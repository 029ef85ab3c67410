local function forever() ::again:: pcall(function() while true do end end) goto again end
return schedule {
  workers = 2, stages = 2, batches = 2,
  w = function(s, b, d) return s, s end,
  n = function(s, b, d) local function f() return f() + 1 end return f() end,
}
