-- 1F1B whose stashes are offloaded only where memory requires it.
local p = params { workers = 4, batches = 8, state = false }
return schedule {
  workers = p.workers, stages = p.workers, batches = p.batches,
  w = function(s, b, d) return s, s end,
  n = function(s, b, d) return one_forward_one_backward(b, d, p.workers - s) end, order = "strict",
  offload = "auto", offload_optimizer = p.state,
}
