-- Vocabulary parallelism: a pipeline whose ranks all compute the last stage, the output, together.
-- The output layer takes more time and memory than another layer of the model; here each rank has a part of its
-- columns, and all compute it together. The other stages are as in 1F1B. Stage P, the output, sets the pace: between
-- two of its microbatches, each rank runs the forward and the backward that became ready during the previous one. So
-- rank r holds up to 2 (P - r) - 1 activations of its stage.
-- Yeung 2024, "Balancing Pipeline Parallelism with Vocabulary Parallelism", which also delays part of the output's backward.
--
-- pianola show schedules/vocab_parallel.lua
--| time    0         10        20        30        40        50
--| rank 0  FFFFFB0F..FB1F..FB2F..FB3B0FFB4B1.FB5B2.FB6B3.FB7B4B5B6B7
--| rank 1  .FFFFB0F..FB1F..FB2B0FFB3B1FFB4B2FFB5B3.FB6B4.FB7B5B6B7..
--| rank 2  ..FFFB0F..FB1B0FFB2B1FFB3B2FFB4B3FFB5B4FFB6B5.FB7B6B7....
--| rank 3  ...FFB0B0FFB1B1FFB2B2FFB3B3FFB4B4FFB5B5FFB6B6FFB7B7......
local p = params { workers = 4, batches = 8 }
local P = p.workers
local all = {}
for r = 0, P - 1 do all[r + 1] = r end

return schedule {
  workers = P, stages = P + 1, batches = p.batches,
  w = function(s, b, d) local on = s < P and s or all return on, on end,
  n = function(s, b, d)
    if s == P then return 4 * b + (d == "F" and 0 or 1) end
    return d == "F" and 4 * (b - P + s) + 3 or 4 * (b + P - 1 - s) + 2
  end,
  order = "strict",
}
