-- Links that are all alike, with a latency and a bandwidth. Without a model jobs cost units (F = 1, B = 2) and a tensor
-- is one byte, so latency counts in units too. With a model it counts in seconds, and so must jobs: give flops, the
-- FLOP per second of a rank. The default is a free link. host: the bandwidth of each rank's link to host memory;
-- memory: bytes of a rank.
local p = params { latency = 0.0, bandwidth = math.huge, flops = 0.0, host = math.huge, memory = math.huge }

return cluster {
  link = function(src, dst) return p.latency, p.bandwidth end,
  flops = p.flops > 0 and p.flops or nil,
  host_link = function(rank) return 0, p.host end,
  memory = p.memory,
}
