local function place(s, b) return 1 + place(s, b) end

return schedule {
  workers = 4, stages = 4, batches = 4,
  w = function(s, b, d) return place(s, b) end,
}
