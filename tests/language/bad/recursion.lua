local function deeper(k) return 1 + deeper(k + 1) end
deeper(1)
return schedule {
  workers = 4, stages = 4, batches = 4,
  w = function(s, b, d) return s, s end,
}
