return schedule {
  workers = 2, stages = 2, batches = 2,
  w = function(s, b, d) return s, s end,
  pred = function(s, b, d)
    if d == "B" then return { { s, b, "F" } } end
    return {}
  end,
  update = "each", version = "input",
}
