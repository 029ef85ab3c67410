-- The cycle passes through a full cap and a strict order, so either can end it.
return schedule {
  workers = 1, stages = 1, batches = 2, cap = 1, order = "strict",
  w = function(s, b, d) return s, s end,
  n = function(s, b, d) return d == "B" and 10 + b or b end,
}
