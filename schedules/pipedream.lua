-- PipeDream: a pipeline without flushes, whose stages are updated after every microbatch.
-- Harlap 2018, "PipeDream: Fast and Efficient Pipeline Parallel DNN Training", sections 3.2 and 3.3; Narayanan 2019,
-- "PipeDream: Generalized Pipeline Parallelism for DNN Training", section 3. A backward reads the weights that its
-- forward read (weight stashing). Microbatch b of a stage with r replicas runs on its rank b mod r; after r of them,
-- its ranks sum their gradients, and each updates. Stage s has enough microbatches in flight to keep it and all later
-- ranks busy: NOAM of them on each rank of the first stage.
--
-- pianola show schedules/pipedream.lua
--| time    0         5         10        15        20        25        30        35        40
--| rank 0  F0F1F2F3. . . . . . B0- F4B1- F5B2- F6B3- F7B4- F8B5- F9B6- F B7- F B8- . B9- . B10 . B11
--|  period                                     |----------------------|
--| rank 1  . F0F1F2. . . . B0- F3B1- F4B2- F5B3- F6B4- F7B5- F8B6- F9B7- F B8- F B9- . B10 . B11 . .
--|  period                                       |----------------------|
--| rank 2  . . F0F1. . B0- F2B1- F3B2- F4B3- F5B4- F6B5- F7B6- F8B7- F9B8- F B9- F B10 . B11 . . . .
--|  period                                         |----------------------|
--| rank 3  . . . F0B0- F1B1- F2B2- F3B3- F4B4- F5B5- F6B6- F7B7- F8B8- F9B9- F B10 F B11 . . . . . .
--|  period                                     |----------------------|
local p = params { replicas = { 1, 1, 1, 1 }, batches = 24 }
local S, first, left = #p.replicas, {}, {} -- per stage: its first rank, and the number of ranks from it on
if S == 0 then error("replicas is empty; give the number of ranks of each stage, such as 2,1,1") end
for s = S, 1, -1 do
  if p.replicas[s] < 1 then error("replicas[" .. s .. "] = " .. p.replicas[s] .. ", but each stage needs a rank") end
  left[s] = p.replicas[s] + (left[s + 1] or 0)
end
for s = 1, S do first[s] = left[1] - left[s] end

return schedule {
  workers = left[1], stages = S, batches = p.batches,
  w = function(s, b, d)
    local rank = first[s + 1] + b % p.replicas[s + 1]
    return rank, rank
  end,
  n = function(s, b, d)
    local r = p.replicas[s + 1]
    local ahead = (left[s + 1] + r - 1) // r
    if d == "U" then return one_forward_one_backward(b, "B", ahead) + 0.5 end -- each rank waits for the sum
    return one_forward_one_backward(b // r, d, ahead)
  end,
  order = "strict",
  update = function(s) return p.replicas[s + 1] end,
}
