-- Every link alike: a latency, and a bandwidth. Without a model jobs cost units (F = 1, B = 2) and a tensor is one
-- byte, so latency counts in units too. The default is a free link.
local p = params { latency = 0.0, bandwidth = math.huge }

return cluster {
  link = function(src, dst) return p.latency, p.bandwidth end,
}
