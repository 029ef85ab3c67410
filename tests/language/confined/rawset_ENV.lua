rawset(_ENV, "schedule", function(t) return t end)
return schedule { workers = 1, stages = 1, batches = 1, w = function() return 0, 0 end }
