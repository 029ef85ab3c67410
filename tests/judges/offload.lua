-- Every stash, or with recompute every input, goes to host memory while it is unused. If requested, so does the
-- optimizer state of even stages. away: how many ranks further a stage's backward runs, so that stashes are sent first.
local p = params { workers = 2, stages = 2, batches = 2, split = false, state = false, away = 0 }
return schedule {
  workers = p.workers, stages = p.stages, batches = p.batches,
  w = function(s, b, d)
    local back = d == "B" or d == "I" or d == "W" or d == "R"
    return s % p.workers, (s + (back and p.away or 0)) % p.workers
  end,
  n = backward_first,
  split_backward = p.split,
  offload = function(s, b) return true end,
  offload_optimizer = function(s) return p.state and s % 2 == 0 end,
}
