-- FSDP between teams: each member's part of a stage is sharded over the ranks with the same place in their teams.
-- A team computes a microbatch; member i gathers its part of a stage from member i of every team, and its gradient is
-- scattered among the same ranks. So a rank gathers 1 / tensor of the bytes of FSDP over all ranks, from fewer ranks.
-- Liang 2024, "TorchTitan: One-stop PyTorch native solution for production ready LLM pre-training", section 2: tensor
-- parallelism inside nodes, FSDP between them.
--
-- pianola show schedules/fsdp_tp.lua
--| time    0       2       4       6       8       10      12      14      16      18      20      22
--| rank 0  0F0 2F0 4F0 6F0 6B0---- 4B0---- 2B0---- 0B0---- 0F4 2F4 4F4 6F4 6B4---- 4B4---- 2B4---- 0B4----
--| rank 1  1F0 3F0 5F0 7F0 7B0---- 5B0---- 3B0---- 1B0---- 1F4 3F4 5F4 7F4 7B4---- 5B4---- 3B4---- 1B4----
--| rank 2  0F1 2F1 4F1 6F1 6B1---- 4B1---- 2B1---- 0B1---- 0F5 2F5 4F5 6F5 6B5---- 4B5---- 2B5---- 0B5----
--| rank 3  1F1 3F1 5F1 7F1 7B1---- 5B1---- 3B1---- 1B1---- 1F5 3F5 5F5 7F5 7B5---- 5B5---- 3B5---- 1B5----
--| rank 4  0F2 2F2 4F2 6F2 6B2---- 4B2---- 2B2---- 0B2---- 0F6 2F6 4F6 6F6 6B6---- 4B6---- 2B6---- 0B6----
--| rank 5  1F2 3F2 5F2 7F2 7B2---- 5B2---- 3B2---- 1B2---- 1F6 3F6 5F6 7F6 7B6---- 5B6---- 3B6---- 1B6----
--| rank 6  0F3 2F3 4F3 6F3 6B3---- 4B3---- 2B3---- 0B3---- 0F7 2F7 4F7 6F7 6B7---- 4B7---- 2B7---- 0B7----
--| rank 7  1F3 3F3 5F3 7F3 7B3---- 5B3---- 3B3---- 1B3---- 1F7 3F7 5F7 7F7 7B7---- 5B7---- 3B7---- 1B7----
local p = params { workers = 8, tensor = 2, stages = 4, batches = 8, slots = 2 }
if p.workers % p.tensor ~= 0 then error("tensor = " .. p.tensor .. " must divide workers = " .. p.workers) end
local data = p.workers // p.tensor
local team, home = {}, {}
for r = 0, data - 1 do
  team[r] = {}
  for i = 1, p.tensor do
    team[r][i] = r * p.tensor + i - 1
    home[(i - 1) * data + r + 1] = team[r][i]   -- one member's part after the other
  end
end

return schedule {
  workers = p.workers, stages = p.stages, batches = p.batches,
  w = function(s, b, d) return home, team[b % data] end,
  n = oldest_batch_first,
  weight_slots = p.slots,
  tune = { stages = { 4, 8, 16 }, slots = { 1, 2, 4 } },
}
