-- Two ranks whose jobs each need many jobs of the other rank: measures the cost of dependencies.
local p = params { batches = 8, many = 4 }
return schedule {
  workers = 2, stages = 2, batches = p.batches,
  w = function(s, b, d) return s, s end,
  n = forward_first,
  pred = function(s, b, d)
    local out = d == "B" and { { s, b, "F" } } or {}
    if s == 1 and d == "F" or s == 0 and d == "B" then
      for i = math.max(0, b - p.many), b do out[#out + 1] = { 1 - s, i, d } end
    end
    return out
  end,
}
