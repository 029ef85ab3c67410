-- 1F1B with stashes in host memory: every second one leaves after its forward and comes back before its backward.
-- Wan 2025, "PipeOffload: Improving Scalability of Pipeline Parallelism with Memory Optimization", section 3: where half
-- of the stashes can leave, at a link to host memory that is fast enough, the step takes as long. The last stage's are
-- read at once and stay.
--
local p = params { workers = 4, batches = 8, every = 2 }

return schedule {
  workers = p.workers, stages = p.workers, batches = p.batches,
  w = function(s, b, d) return s, s end,
  n = function(s, b, d) return one_forward_one_backward(b, d, p.workers - s) end, order = "strict",
  offload = function(s, b) return b % p.every == 0 and s < p.workers - 1 end,
}
