-- 1F1B times DDP: replicas of a pipeline, each with its microbatches.
-- A stage's replicas sum their gradients once its last backward has ended. With zero = 1 they shard the optimizer
-- state, with zero = 2 also the gradient.
-- Narayanan 2021, "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", section 3.3.
--
-- pianola show schedules/1f1b_ddp.lua
--| time    0              5              10             15             20
--| rank 0  F0 F2 F4 F6  .  .  .  .  .  . B0---  . B2---  . B4---  . B6---
--| rank 1   . F0 F2 F4  .  .  .  . B0--- F6 B2---  . B4---  . B6---  .  .
--| rank 2   .  . F0 F2  .  . B0--- F4 B2--- F6 B4---  . B6---  .  .  .  .
--| rank 3   .  .  . F0 B0--- F2 B2--- F4 B4--- F6 B6---  .  .  .  .  .  .
--| rank 4  F1 F3 F5 F7  .  .  .  .  .  . B1---  . B3---  . B5---  . B7---
--| rank 5   . F1 F3 F5  .  .  .  . B1--- F7 B3---  . B5---  . B7---  .  .
--| rank 6   .  . F1 F3  .  . B1--- F5 B3--- F7 B5---  . B7---  .  .  .  .
--| rank 7   .  .  . F1 B1--- F3 B3--- F5 B5--- F7 B7---  .  .  .  .  .  .
local p = params { workers = 8, replicas = 2, batches = 8, zero = 0 }
if p.workers % p.replicas ~= 0 then error("replicas = " .. p.replicas .. " must divide workers = " .. p.workers) end
local depth = p.workers // p.replicas
local stages = params { stages = depth }.stages
if stages ~= depth then error("a stage per rank of a replica: stages = " .. stages .. " must be " .. depth) end
local function rank(s, b) return b % p.replicas * depth + s end

return schedule {
  workers = p.workers, stages = stages, batches = p.batches,
  w = function(s, b, d) return rank(s, b), rank(s, b) end,
  n = function(s, b, d) return one_forward_one_backward(b // p.replicas, d, depth - s) end, order = "strict",
  zero = p.zero,
  tune = { replicas = "divisors", zero = { 0, 1, 2 } },
}
