-- A closed form has no jobs to ask about.
return schedule {
  workers = 4, stages = 4, batches = 1,
  w = function(s, b, d) return s, s end,
  bubble = function(s, b, d) return 0 end,
}
