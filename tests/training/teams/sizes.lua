-- Stages on teams of alternating sizes, a and b. The teams begin with the same ranks, so one hands over to the other.
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
}
