-- Like tests/training/teams/sizes.lua, with the dependencies of its stages listed.
local t = params { a = 4, b = 2 }
local function team(n)
  local ranks = {}
  for i = 1, n do ranks[i] = i - 1 end
  return ranks
end

return schedule {
  workers = 4, stages = 4, batches = 8,
  w = function(s, b, d) local on = team(s % 2 == 0 and t.a or t.b) return on, on end,
  n = oldest_batch_first,
  pred = function(s, b, d)
    if d == "F" then return s > 0 and { { s - 1, b, "F" } } or {} end
    return { { s, b, "F" }, s < 3 and { s + 1, b, "B" } or nil }
  end,
}
