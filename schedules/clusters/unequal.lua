-- Ranks of unequal speed: rank k is speed[k + 1] times as fast as the cost of its jobs says; those not listed are as fast.
-- Links are free.
local p = params { speed = { 0.5 } }

return cluster {
  speed = function(rank) return p.speed[rank + 1] or 1 end,
}
