-- WeiPipe-Interleave: microbatches stay on their ranks, and weights travel, instead of activations.
-- In a turn, a rank runs a backward of one microbatch and a forward of the next. The weights for both arrive from the
-- rank before it, which uses them too; rank 0 takes them from their homes. If links take time, each rank therefore
-- starts one transfer later than the rank before it.
-- Lin 2025, "WeiPipe: Weight Pipeline Parallelism for Communication-Effective Long-Context Large Model Training", and the
-- forward_backward_step in weipipe.py of github.com/wuhouming/TawPipe. In that code, each rank starts a turn after the
-- one before it, and gradients travel along with the weights; here each rank adds up its own gradients and sends the
-- sum home.
--
-- pianola show schedules/weipipe.lua
--| time    0       2       4       6       8       10      12      14      16      18      20      22
--| rank 0  0F0 1F0 2F0 3F0 3B0---- 0F4 2B0---- 1F4 1B0---- 2F4 0B0---- 3F4 3B4---- 2B4---- 1B4---- 0B4----
--| rank 1  0F1 1F1 2F1 3F1 3B1---- 0F5 2B1---- 1F5 1B1---- 2F5 0B1---- 3F5 3B5---- 2B5---- 1B5---- 0B5----
--| rank 2  0F2 1F2 2F2 3F2 3B2---- 0F6 2B2---- 1F6 1B2---- 2F6 0B2---- 3F6 3B6---- 2B6---- 1B6---- 0B6----
--| rank 3  0F3 1F3 2F3 3F3 3B3---- 0F7 2B3---- 1F7 1B3---- 2F7 0B3---- 3F7 3B7---- 2B7---- 1B7---- 0B7----
local p = params { workers = 4, stages = 4, batches = 8, slots = 2 }

return schedule {
  workers = p.workers, stages = p.stages, batches = p.batches,
  w = function(s, b, d) return s % p.workers, b % p.workers end,
  n = function(s, b, d)
    local turn = b // p.workers * p.stages -- the turn of the microbatch's first forward
    return d == "F" and 2 * (turn + s) + 1 or 2 * (turn + 2 * p.stages - 1 - s)
  end,
  source = function(s, b, d)
    local r = b % p.workers
    return r > 0 and r - 1 or nil
  end,
  weight_slots = p.slots,
  tune = { stages = { 2, 4, 8, 16 } },
}
