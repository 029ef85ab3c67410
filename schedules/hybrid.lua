-- Hybrid: data parallelism over replicas of a 1F1B pipeline.
-- Microbatches are dealt to the replicas in turn, and the replicas of a stage sum their gradients.
-- Narayanan 2021, "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", section 3.
--
-- pianola show schedules/hybrid.lua
--| time    0              5              10             15             20
--| rank 0  F0 F2 F4 F6  .  .  .  .  .  . B0---  . B2---  . B4---  . B6---
--| rank 1   . F0 F2 F4  .  .  .  . B0--- F6 B2---  . B4---  . B6---  .  .
--| rank 2   .  . F0 F2  .  . B0--- F4 B2--- F6 B4---  . B6---  .  .  .  .
--| rank 3   .  .  . F0 B0--- F2 B2--- F4 B4--- F6 B6---  .  .  .  .  .  .
--| rank 4  F1 F3 F5 F7  .  .  .  .  .  . B1---  . B3---  . B5---  . B7---
--| rank 5   . F1 F3 F5  .  .  .  . B1--- F7 B3---  . B5---  . B7---  .  .
--| rank 6   .  . F1 F3  .  . B1--- F5 B3--- F7 B5---  . B7---  .  .  .  .
--| rank 7   .  .  . F1 B1--- F3 B3--- F5 B5--- F7 B7---  .  .  .  .  .  .
local p = params { workers = 8, replicas = 2, batches = 8 }
local R = p.replicas
if R < 1 or p.workers % R ~= 0 then error("replicas = " .. R .. " must divide workers = " .. p.workers) end
local P = p.workers // R

local function turn(s, b, d)                               -- 1F1B's order over each replica's own microbatches
  local k, warmup = b // R, P - s
  if d ~= "F" then return warmup + 2 * k end
  return k < warmup and k or 2 * k - warmup + 1
end

return schedule {
  workers = p.workers, stages = P, batches = p.batches,
  w = function(s, b, d)
    local rank = b % R * P + s
    return rank, rank
  end,
  n = turn, order = "strict",
  bubble = p.batches % R == 0 and (P - 1) / (p.batches // R + P - 1) or nil,
  tune = { replicas = "divisors" },
}
