-- A random schedule: every job's rank and home drawn from a table, odd priorities, sometimes a cap, a split backward,
-- recompute. F and B of a stage land on different ranks, and placement depends on b in no regular way.
local p = params { seed = 1 }
math.randomseed(p.seed)
local random = math.random
local W, S, B = random(1, 5), random(1, 6), random(1, 8)
local homes, compute, prio = {}, {}, {}
local kind = random(1, 4) -- of homes: one per stage, drawn per job, the computing rank, one per microbatch
for s = 0, S - 1 do
  local home = random(0, W - 1)
  for b = 0, B - 1 do
    for _, d in ipairs { "F", "B", "I", "W", "R" } do
      local j = (s * B + b) .. d
      compute[j] = random(0, W - 1)
      homes[j] = kind == 1 and home or kind == 2 and random(0, W - 1) or kind == 3 and compute[j] or b % W
      prio[j] = random(1, 3) == 1 and random(-9, 9) or random()
    end
  end
end
local split, again, capped, strict = random(1, 3), random(1, 3), random(1, 3) == 1, false
local function job(s, b, d) return (s * B + b) .. d end

return schedule {
  workers = W, stages = S, batches = B,
  w = function(s, b, d) return homes[job(s, b, d)], compute[job(s, b, d)] end,
  n = capped and oldest_batch_first or function(s, b, d) return prio[job(s, b, d)] end,
  cap = capped and function(r) return S + r % 2 end or nil,
  split_backward = split == 1 or split == 2 and function(s, b) return (s + b) % 2 == 0 end or nil,
  recompute = again == 1 and function(s, b) return true end or again == 2 and function(s, b) return b % 3 == 1 end or nil,
  weight_slots = random(0, 3),
}
