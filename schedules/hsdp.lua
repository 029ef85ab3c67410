-- Hybrid sharding: each stage is cut over the ranks of a group, and the groups are replicas.
-- Gathers stay inside a group, such as a node; only gradient shards cross between groups.
-- Zhao 2023, "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel", section 3.2.2.
--
-- pianola show schedules/hsdp.lua
--| time    0       2       4       6       8       10
--| rank 0  0F0 1F0 2F0 3F0 3B0---- 2B0---- 1B0---- 0B0----
--| rank 1  0F1 1F1 2F1 3F1 3B1---- 2B1---- 1B1---- 0B1----
--| rank 2  0F2 1F2 2F2 3F2 3B2---- 2B2---- 1B2---- 0B2----
--| rank 3  0F3 1F3 2F3 3F3 3B3---- 2B3---- 1B3---- 0B3----
--| rank 4  0F4 1F4 2F4 3F4 3B4---- 2B4---- 1B4---- 0B4----
--| rank 5  0F5 1F5 2F5 3F5 3B5---- 2B5---- 1B5---- 0B5----
--| rank 6  0F6 1F6 2F6 3F6 3B6---- 2B6---- 1B6---- 0B6----
--| rank 7  0F7 1F7 2F7 3F7 3B7---- 2B7---- 1B7---- 0B7----
local p = params { workers = 8, stages = 4, batches = 8, slots = 2, group = 4, zero = 0 }
if p.workers % p.group ~= 0 then error("group = " .. p.group .. " must divide workers = " .. p.workers) end
local list = {}
for r = 0, p.workers - 1 do
  local first = r - r % p.group
  list[first] = list[first] or {}
  list[first][r - first + 1] = r
end

return schedule {
  workers = p.workers, stages = p.stages, batches = p.batches,
  w = function(s, b, d) local r = b % p.workers return list[r - r % p.group], r end,
  n = oldest_batch_first,
  weight_slots = p.slots,
  zero = p.zero,
  tune = { stages = { 4, 8, 16 }, slots = { 2, 4 }, group = "divisors", zero = { 0, 1, 2 } },
}
