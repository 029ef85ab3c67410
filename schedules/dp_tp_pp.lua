-- Data, tensor and pipeline parallelism: replicas of a pipeline whose stages are teams ("3D").
-- Ranks are numbered within a team first, then by stage, then by replica: a team exchanges the most data, so its
-- members are nearest to each other. Member i of a stage's team sums its part of the gradient with member i of the
-- other replicas. split: weight gradients run where a rank would idle, as in 2bp.lua (Rae 2024, "2BP: 2-Stage
-- Backpropagation"). zero = 1: the replicas shard the optimizer state; zero = 2: also the gradient.
-- Narayanan 2021, "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", section 3.
--
-- pianola show schedules/dp_tp_pp.lua
--| time    0              5              10
--| rank 0  F0 F2  .  . B0--- F4 B2--- F6 B4---  . B6---
--| rank 1  F0 F2  .  . B0--- F4 B2--- F6 B4---  . B6---
--| rank 2   . F0 B0--- F2 B2--- F4 B4--- F6 B6---  .  .
--| rank 3   . F0 B0--- F2 B2--- F4 B4--- F6 B6---  .  .
--| rank 4  F1 F3  .  . B1--- F5 B3--- F7 B5---  . B7---
--| rank 5  F1 F3  .  . B1--- F5 B3--- F7 B5---  . B7---
--| rank 6   . F1 B1--- F3 B3--- F5 B5--- F7 B7---  .  .
--| rank 7   . F1 B1--- F3 B3--- F5 B5--- F7 B7---  .  .
local p = params { workers = 8, data = 2, tensor = 2, batches = 8, split = false, zero = 0 }
local replica = p.workers // p.data
if p.workers % (p.data * p.tensor) ~= 0 then
  error("data x tensor = " .. p.data .. " x " .. p.tensor .. " must divide workers = " .. p.workers)
end
local depth = replica // p.tensor
local stages = params { stages = depth }.stages
if stages ~= depth then error("a stage per team of a replica: stages = " .. stages .. " must be " .. depth) end
local team = {}
for r = 0, p.data - 1 do
  team[r] = {}
  for s = 0, depth - 1 do
    team[r][s] = {}
    for i = 1, p.tensor do team[r][s][i] = r * replica + s * p.tensor + i - 1 end
  end
end

return schedule {
  workers = p.workers, stages = stages, batches = p.batches,
  w = function(s, b, d) local own = team[b % p.data][s] return own, own end,
  n = function(s, b, d) return one_forward_one_backward(b // p.data, d, depth - s) end, order = "strict",
  split_backward = p.split,
  fill = p.split and function(s, b, d) return d == "W" end or nil,
  zero = p.zero,
  tune = { data = "divisors", split = { false, true }, zero = { 0, 1, 2 } },
}
