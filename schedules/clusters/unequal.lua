-- Ranks of unequal speed: rank k runs its jobs at speed[k + 1] times the normal speed; unlisted ranks run at 1.
-- Links are free. flops: the FLOP per second of a rank of speed 1, which `partition` and `tune` need; 0: costs are in units.
local p = params { speed = { 0.5 }, flops = 0.0 }

return cluster {
  flops = p.flops > 0 and p.flops or nil,
  speed = function(rank) return p.speed[rank + 1] or 1 end,
}
