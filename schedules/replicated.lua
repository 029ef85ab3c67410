-- Replicated stages: a 1F1B pipeline with more ranks for stages that take longer.
-- Microbatch b of a stage with r ranks runs on its rank b mod r, forward and backward; its ranks sum their gradients.
-- Narayanan 2019, "PipeDream: Generalized Pipeline Parallelism for DNN Training", section 3.2 (1F1B-RR), with a flush.
--
-- pianola show schedules/replicated.lua
--| time    0              5              10             15             20             25
--| rank 0  F0 F2  .  .  .  .  . B0--- F4  .  .  . B2--- F6  .  .  . B4---  .  .  .  . B6---  .  .  .
--| rank 1  F1 F3  .  .  .  .  .  .  .  . B1--- F5  .  .  . B3--- F7  .  .  . B5---  .  .  .  . B7---
--| rank 2   . F0 F1  .  . B0--- F2 B1--- F3 B2--- F4 B3--- F5 B4--- F6 B5--- F7 B6---  . B7---  .  .
--| rank 3   .  . F0 B0--- F1 B1--- F2 B2--- F3 B3--- F4 B4--- F5 B5--- F6 B6--- F7 B7---  .  .  .  .
local p = params { replicas = { 2, 1, 1 }, batches = 8 }
local S, first, left = #p.replicas, {}, {} -- per stage: its first rank, and the number of ranks from it on
if S == 0 then error("replicas is empty; give the number of ranks of each stage, such as 2,1,1") end
for s = S, 1, -1 do
  if p.replicas[s] < 1 then error("replicas[" .. s .. "] = " .. p.replicas[s] .. ", but each stage needs a rank") end
  left[s] = p.replicas[s] + (left[s + 1] or 0)
end
for s = 1, S do first[s] = left[1] - left[s] end

-- 1F1B on each rank: enough warm-up forwards to keep it and all later ranks busy.
local function turn(s, b, d)
  local r = p.replicas[s + 1]
  local k, warmup = b // r, (left[s + 1] + r - 1) // r
  if d ~= "F" then return warmup + 2 * k end
  return k < warmup and k or 2 * k - warmup + 1
end

return schedule {
  workers = left[1], stages = S, batches = p.batches,
  w = function(s, b, d)
    local rank = first[s + 1] + b % p.replicas[s + 1]
    return rank, rank
  end,
  n = turn, order = "strict",
}
