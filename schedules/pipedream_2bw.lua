-- PipeDream-2BW: two versions of the weights on every stage, whatever the depth.
-- Narayanan 2021, "Memory-Efficient Pipeline-Parallel DNN Training", section 3.1. Gradients are summed over `update`
-- microbatches, at least as many as there are stages; microbatches of the k-th update read weights that lack the
-- (k-1)-th: a delay of one update on every stage.
--
-- pianola show schedules/pipedream_2bw.lua
--| time    0         10        20        30        40        50
--| rank 0  FFFF......B0FB1FB2FB3FB4FB5FB6FB7FB8FB9FB FB FB .B .B .B
--|  period                         |----------|
--| rank 1  .FFF....B0FB1FB2FB3FB4FB5FB6FB7FB8FB9FB FB FB FB .B .B ..
--|  period                          |----------|
--| rank 2  ..FF..B0FB1FB2FB3FB4FB5FB6FB7FB8FB9FB FB FB FB FB .B ....
--|  period                         |----------|
--| rank 3  ...FB0FB1FB2FB3FB4FB5FB6FB7FB8FB9FB FB FB FB FB FB ......
--|  period                         |----------|
local p = params { workers = 4, batches = 24, update = 4 }
if p.update < p.workers then
  error("2BW sums over at least as many microbatches as there are stages: update = " .. p.update .. " < " .. p.workers)
end
return schedule {
  workers = p.workers, stages = p.workers, batches = p.batches,
  w = function(s, b, d) return s, s end,
  n = function(s, b, d) return one_forward_one_backward(b, d, p.workers - s) end, order = "strict",
  update = p.update, version = 1,
}
