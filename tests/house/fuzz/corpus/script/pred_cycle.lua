return schedule {
  workers = 4, stages = 4, batches = 4,
  w = function(s, b, d) return s, s end,
  pred = function(s, b, d)
    if s == 0 and d == "F" then return { { 2, b, "F" } } end
    if d == "F" then return { { s - 1, b, "F" } } end
    return { { s, b, "F" } }
  end,
}
