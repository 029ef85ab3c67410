-- Tensor parallelism: one team of ranks computes every job, with gradients summed over microbatches.
-- The members divide each layer that the model marks with `split`: the first matrix by columns, the second by rows, so
-- that each pair needs one all-reduce in the forward and one in the backward. There are no other messages, and no rank
-- idles. Shoeybi 2019, "Megatron-LM: Training Multi-Billion Parameter Language Models Using Model Parallelism", section
-- 3.
--
-- pianola show schedules/tp.lua
--| time    0         5         10        15        20        25        30        35        40        45
--| rank 0  F0F0F0F0B0- B0- B0- B0- F1F1F1F1B1- B1- B1- B1- F2F2F2F2B2- B2- B2- B2- F3F3F3F3B3- B3- B3- B3-
--| rank 1  F0F0F0F0B0- B0- B0- B0- F1F1F1F1B1- B1- B1- B1- F2F2F2F2B2- B2- B2- B2- F3F3F3F3B3- B3- B3- B3-
--| rank 2  F0F0F0F0B0- B0- B0- B0- F1F1F1F1B1- B1- B1- B1- F2F2F2F2B2- B2- B2- B2- F3F3F3F3B3- B3- B3- B3-
--| rank 3  F0F0F0F0B0- B0- B0- B0- F1F1F1F1B1- B1- B1- B1- F2F2F2F2B2- B2- B2- B2- F3F3F3F3B3- B3- B3- B3-
local p = params { tensor = 4, stages = 4, batches = 4 }
local workers = params { workers = p.tensor }.workers
if workers ~= p.tensor then error("the team is all ranks: tensor = " .. p.tensor .. " must equal workers = " .. workers) end
local team = {}
for i = 1, p.tensor do team[i] = i - 1 end

return schedule {
  workers = workers, stages = p.stages, batches = p.batches,
  w = function(s, b, d) return team, team end,
  n = oldest_batch_first,
}
