-- GPipe, 1F1B in its published order, or 1F1B as a greedy rank with a cap runs it, over stages of unequal cost: F of
-- stage s costs costs[s], and B costs twice as much.
local p = params { scheme = "1f1b", batches = 8, costs = { 1.0, 1.0, 1.0, 1.0 } }
local P = #p.costs
local schemes = {
  gpipe = { order = "strict", n = forward_first },
  ["1f1b"] = { order = "strict", n = function(s, b, d)
    return d == "B" and P - s + 2 * b or b < P - s and b or 2 * b - (P - s) + 1
  end },
  greedy = { n = backward_first, cap = function(r) return P - r end },
}
local scheme = schemes[p.scheme]

return schedule {
  workers = P, stages = P, batches = p.batches,
  w = function(s, b, d) return s, s end,
  order = scheme.order, n = scheme.n, cap = scheme.cap,
  cost = function(s, b, d) return p.costs[s + 1] * (d == "B" and 2 or 1) end,
}
