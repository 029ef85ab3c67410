-- Looped Pipeline Parallelism: groups of ranks, each a pipeline of its own through which the stages go round. With
-- group = workers it is GPipe's placement, with group = 1 it is DDP.
-- Rahimi 2025, "Unifying Parallelization Schemes to Train Deep Nets", section "Formal definitions of distributed
-- schedules": w = (h, h), where group is the paper's R; oldest batch first, as its simulator runs.
--
-- (timeline: see generated/lpp)
local p = params { workers = 8, stages = 4, batches = 8, group = 4 }
if p.workers % p.group ~= 0 then error("group = " .. p.group .. " must divide workers = " .. p.workers) end

local function h(s, b) return (p.group * b) % p.workers + s % p.group end

return schedule {
  workers = p.workers, stages = p.stages, batches = p.batches,
  w = function(s, b, d) return h(s, b), h(s, b) end,
  n = oldest_batch_first,
}
