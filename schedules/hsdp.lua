-- Hybrid sharding: each stage is cut evenly over the ranks of a node, say, and the nodes are replicas. Gathers stay inside;
-- only shards of gradients cross.
-- Zhao 2023, "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel", section 3.2.2.
--
-- pianola show schedules/hsdp.lua
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
}
