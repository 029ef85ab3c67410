-- Fully Sharded Looped Pipeline Parallelism: as LPP, but each stage's weights live on one rank, and the same stage of
-- another group fetches them.
-- Rahimi 2025, "Unifying Parallelization Schemes to Train Deep Nets", section "Formal definitions of distributed
-- schedules": home h(s, s), compute h(s, b), where group is the paper's R; oldest batch first, as its simulator runs.
--
-- (timeline: see generated/fslpp)
local p = params { workers = 8, stages = 4, batches = 8, group = 4 }
if p.workers % p.group ~= 0 then error("group = " .. p.group .. " must divide workers = " .. p.workers) end

local function h(s, b) return (p.group * b) % p.workers + s % p.group end

return schedule {
  workers = p.workers, stages = p.stages, batches = p.batches,
  w = function(s, b, d) return h(s, s), h(s, b) end,
  n = oldest_batch_first,
}
