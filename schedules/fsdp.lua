-- Fully Sharded Data Parallelism: as DDP, but each stage's weights live on one rank and the others fetch them.
-- Rahimi 2025, "Unifying Parallelization Schemes to Train Deep Nets", section "Formal definitions of distributed
-- schedules": w = (s, b). Here both go round, so stages and microbatches may exceed the workers.
-- (Zhao 2023, "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel", cuts each stage over all ranks.)
--
-- (timeline: see generated/fsdp)
local p = params { workers = 8, stages = 4, batches = 8 }

return schedule {
  workers = p.workers, stages = p.stages, batches = p.batches,
  w = function(s, b, d) return s % p.workers, b % p.workers end,
  n = oldest_batch_first,
}
