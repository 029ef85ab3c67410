-- args: FILE --model ../../../schedules/models/gpt.lua --memory 1e6
-- With a model, the error also names smaller microbatches and bf16.
return schedule { workers = 2, stages = 2, batches = 4, w = function(s, b, d) return s, s end, n = backward_first }
