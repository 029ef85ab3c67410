-- Identical links, with a latency and a bandwidth. Without a model, jobs cost units (F = 1, B = 2) and a tensor is one
-- byte, so latency is in units too. With a model, latency is in seconds, so jobs must be too: set flops, the FLOP per
-- second of a rank. Links are free by default. host: bandwidth of each rank's link to host memory; memory: bytes per
-- rank.
local p = params { latency = 0.0, bandwidth = math.huge, flops = 0.0, host = math.huge, memory = math.huge }

return cluster {
  link = function(src, dst) return p.latency, p.bandwidth end,
  flops = p.flops > 0 and p.flops or nil,
  host_link = function(rank) return 0, p.host end,
  memory = p.memory,
}
