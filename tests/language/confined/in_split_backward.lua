local function forever() ::again:: pcall(function() while true do end end) goto again end
return schedule {
  workers = 2, stages = 2, batches = 2,
  w = function(s, b, d) return s, s end,
  split_backward = forever,
}
