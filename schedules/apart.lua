-- Forward and backward apart: a stage's forwards run on one rank, its backwards in turn on others.
-- Backwards take twice as long, so each stage has two ranks for them. The stash travels, so forward ranks keep no
-- activations. The forward rank owns the weights; the others fetch them and send their gradients home.
-- Rahimi 2025, "Unifying Parallelization Schemes to Train Deep Nets": w(s,b,d) may place F and B of a stage apart.
--
-- pianola show schedules/apart.lua
--| time    0              5              10
--| rank 0  F0 F1 F2 F3 F4 F5 F6 F7  .  .  .  .  .
--| rank 1   .  .  .  . B0--- B2--- B4--- B6---  .
--| rank 2   .  .  .  .  . B1--- B3--- B5--- B7---
--| rank 3   . F0 F1 F2 F3 F4 F5 F6 F7  .  .  .  .
--| rank 4   .  . B0--- B2--- B4--- B6---  .  .  .
--| rank 5   .  .  . B1--- B3--- B5--- B7---  .  .
local p = params { stages = 2, backward_ranks = 2, batches = 8 }
if p.backward_ranks < 1 then error("backward_ranks = " .. p.backward_ranks .. ", but each stage needs one") end

return schedule {
  workers = p.stages * (1 + p.backward_ranks), stages = p.stages, batches = p.batches,
  w = function(s, b, d)
    local forward = s * (1 + p.backward_ranks)
    return forward, d == "F" and forward or forward + 1 + b % p.backward_ranks
  end,
  n = oldest_batch_first,
}
