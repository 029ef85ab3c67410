-- ASP: asynchronous data parallelism; each worker trains on the newest weights it can get, and waits for nobody.
-- Weights are updated after each microbatch, wherever it was run.
-- Dean 2012, "Large Scale Distributed Deep Networks", section 4.1 (Downpour SGD); Ho 2013, "More Effective Distributed ML
-- via a Stale Synchronous Parallel Parameter Server". The stages are spread over the workers, as over parameter servers.
--
-- pianola show schedules/asp.lua
--| time    0         5         10        15        20        25        30        35        40        45
--| rank 0  F0F0F0F0B0- B0- B0- B0- F4F4F4F4B4- B4- B4- B4- F8F8F8F8B8- B8- B8- B8- F F F F B12 B12 B12 B12
--|  period                         |----------------------------------------------|
--| rank 1  F1F1F1F1B1- B1- B1- B1- F5F5F5F5B5- B5- B5- B5- F9F9F9F9B9- B9- B9- B9- F F F F B13 B13 B13 B13
--|  period                           |----------------------------------------------|
--| rank 2  F2F2F2F2B2- B2- B2- B2- F6F6F6F6B6- B6- B6- B6- F F F F B10 B10 B10 B10 F F F F B14 B14 B14 B14
--|  period                           |----------------------------------------------|
--| rank 3  F3F3F3F3B3- B3- B3- B3- F7F7F7F7B7- B7- B7- B7- F F F F B11 B11 B11 B11 F F F F B15 B15 B15 B15
--|  period                           |----------------------------------------------|
-- By default, workers may drift apart. With slack = n, no worker begins its k-th microbatch before all have ended their
-- (k-n)-th. This also makes long steps periodic if workers differ in speed.
local p = params { workers = 4, stages = 4, batches = 24, slack = 0 }

-- The default dependencies, and every worker's microbatch `slack` turns ago.
local function within_slack(s, b, d)
  if d == "F" and s > 0 then return { { s - 1, b, "F" } } end
  local needs = {}
  if d == "B" then needs[1] = { s, b, "F" } end
  if d == "B" and s < p.stages - 1 then needs[2] = { s + 1, b, "B" } end
  local round = b // p.workers - p.slack
  if d == "F" and round >= 0 then
    for i = 0, p.workers - 1 do needs[i + 1] = { 0, round * p.workers + i, "B" } end
  end
  return needs
end

return schedule {
  workers = p.workers, stages = p.stages, batches = p.batches,
  w = function(s, b, d) return s % p.workers, b % p.workers end,
  n = oldest_batch_first, weight_slots = p.stages, cap = p.stages,
  pred = p.slack > 0 and within_slack or nil,
  update = "each",
}
