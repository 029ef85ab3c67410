-- 1F1B: a stage per rank; after a warm-up, one forward and one backward in turn, so that rank r holds at most
-- workers - r microbatches. GPipe's makespan with less memory.
-- Narayanan 2019, "PipeDream: Generalized Pipeline Parallelism for DNN Training", section 3.2; with the flush at the
-- end of a step as in Narayanan 2021, "Memory-Efficient Pipeline-Parallel DNN Training", section 3.2.
--
-- (timeline: see generated/1f1b)
local p = params { workers = 4, batches = 8 }
local stages = params { stages = p.workers }.stages
if stages ~= p.workers then error("1F1B has a stage per rank: stages = " .. stages .. " must equal workers = " .. p.workers) end

return schedule {
  workers = p.workers, stages = stages, batches = p.batches,
  w = function(s, b, d) return s, s end,
  n = backward_first,
  cap = function(r) return p.workers - r end,
}
