-- Asynchronous data parallelism: every worker runs whole microbatches on the newest weights that it can get, and the
-- weights are updated after each of them, with no worker waiting for another.
-- Dean 2012, "Large Scale Distributed Deep Networks", section 4.1 (Downpour SGD); Ho 2013, "More Effective Distributed ML
-- via a Stale Synchronous Parallel Parameter Server". The stages are spread over the workers, as over parameter servers.
local p = params { workers = 4, stages = 4, batches = 24 }
return schedule {
  workers = p.workers, stages = p.stages, batches = p.batches,
  w = function(s, b, d) return s % p.workers, b % p.workers end,
  n = oldest_batch_first, weight_slots = p.stages, cap = p.stages,
  update = "each",
}
