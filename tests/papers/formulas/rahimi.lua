-- The schemes of Rahimi 2025 as the paper's simulator runs them: oldest batch first, no cap, weights fetched for every
-- job and never kept.
local p = params { scheme = "lpp", workers = 4, stages = 4, batches = 8, group = 2, stage_first = false, slots = 0 }
local function h(s, b) return (p.group * b) % p.workers + s % p.group end
local w = {
  ddp = function(s, b, d) return b % p.workers, b % p.workers end,
  fsdp = function(s, b, d) return s % p.workers, b % p.workers end,
  gpipe = function(s, b, d) return s, s end,
  lpp = function(s, b, d) return h(s, b), h(s, b) end,
  fslpp = function(s, b, d) return h(s, s), h(s, b) end,
}

return schedule {
  workers = p.workers, stages = p.stages, batches = p.batches,
  w = w[p.scheme],
  n = p.stage_first and forward_first or oldest_batch_first,
  weight_slots = p.slots,
}
