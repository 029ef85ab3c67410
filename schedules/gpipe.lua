-- GPipe: a stage per rank; all forwards, then all backwards. Every rank holds all microbatches at the peak.
-- Huang 2019, "GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism", section 2.3;
-- as w = (s, s) in Rahimi 2025, "Unifying Parallelization Schemes to Train Deep Nets".
--
-- (timeline: see generated/gpipe)
local p = params { workers = 4, batches = 8 }
local stages = params { stages = p.workers }.stages
if stages ~= p.workers then error("GPipe has a stage per rank: stages = " .. stages .. " must equal workers = " .. p.workers) end

return schedule {
  workers = p.workers, stages = stages, batches = p.batches,
  w = function(s, b, d) return s, s end,
  n = forward_first,
}
