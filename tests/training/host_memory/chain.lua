-- A chain whose stashes, or some of them, and optimizer state are in host memory while unused.
-- apart: the backward runs on the next rank.
local p = params { workers = 4, stages = 4, batches = 8, which = "all", state = true, recompute = false, split = false, apart = false }
local which = {
  all = function() return true end,
  some = function(s, b) return s == 0 or b % 3 == 1 end,
}
return schedule {
  workers = p.workers, stages = p.stages, batches = p.batches,
  w = function(s, b, d)
    local home = s % p.workers
    return home, p.apart and d ~= "F" and (home + 1) % p.workers or home
  end,
  n = backward_first,
  split_backward = p.split,
  recompute = p.recompute and function(s) return s ~= 1 end or nil,
  offload = which[p.which],
  offload_optimizer = p.state and function(s) return s ~= 2 end or nil,
}
