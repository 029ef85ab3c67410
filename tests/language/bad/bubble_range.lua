-- A bubble is a part of the makespan, not of the work: it is below 1.
return schedule {
  workers = 4, stages = 4, batches = 1,
  w = function(s, b, d) return s, s end,
  bubble = 3,
}
