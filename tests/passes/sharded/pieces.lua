-- Gradients in pieces and in rounds: lists of F ranks, as replicas; or, with F = 0, one home that computes a part itself.
local p = params { workers = 4, stages = 2, batches = 8, F = 1, zero = 0, bucket = 0, sums = math.huge, split = false }
local function list(b)
  local ranks, first = {}, b % p.workers // p.F * p.F
  for i = 1, p.F do ranks[i] = first + i - 1 end
  return ranks
end
return schedule {
  workers = p.workers, stages = p.stages, batches = p.batches,
  w = function(s, b, d) return p.F > 0 and list(b) or s, b % p.workers end,
  n = oldest_batch_first, zero = p.zero, split_backward = p.split,
  bucket = p.bucket > 0 and p.bucket or nil, grad_slots = p.sums,
}
