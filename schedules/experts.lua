-- Expert parallelism: DualPipeV without copies of weights, whose ranks are teams that divide the experts.
-- Team k of P has the stages k and 2 P - 1 - k of a V, as in dualpipev.lua. With `-D parallel=experts` of models/moe.lua its
-- members work on sequences of their own and exchange tokens within each job, to the experts and back. The parts of an F
-- and a B in a pair alternate, so that one computes while the other exchanges.
-- Lepikhin 2020, "GShard: Scaling Giant Models with Conditional Computation and Automatic Sharding", section 3.2;
-- DeepSeek-AI 2024, "DeepSeek-V3 Technical Report", section 3.2.1, and 2025, github.com/deepseek-ai/DualPipe.
--
-- pianola show schedules/experts.lua
--| time    0         5         10        15        20        25        30        35        40        45
--| rank 0  F0F1F2F0I0W0F1F3+B1 . F2+B0 F4+B2 F3+B1 F5+B3 F4+B2 F6+B4 F5+B3 F7+B5 F6+B4 B6- . F7+B5 B7- I6W6I7W7
--| rank 1  F0F1F2F0I0W0F1F3+B1 . F2+B0 F4+B2 F3+B1 F5+B3 F4+B2 F6+B4 F5+B3 F7+B5 F6+B4 B6- . F7+B5 B7- I6W6I7W7
--| rank 2  . F0F0F1F1F2B0- F2+B0 F3+B1 F3+B1 F4+B2 F4+B2 F5+B3 F5+B3 F6+B4 F6+B4 F7+B5 F7+B5 B6- B6- . I7I7W7W7
--| rank 3  . F0F0F1F1F2B0- F2+B0 F3+B1 F3+B1 F4+B2 F4+B2 F5+B3 F5+B3 F6+B4 F6+B4 F7+B5 F7+B5 B6- B6- . I7I7W7W7
local p = params { workers = 4, tensor = 2, batches = 8, overlap = 0.0 }
local P, M = p.workers // p.tensor, p.batches
if p.workers % p.tensor ~= 0 then error("tensor = " .. p.tensor .. " must divide workers = " .. p.workers) end
if M < 2 * P then error("DualPipeV fills a V of 2 P stages: batches = " .. M .. " must be at least " .. 2 * P) end

local function order(r)
  local before, below = r + 1, P - r - 1                   -- teams up to this one; after it, to the V's tip
  return unroll({
    { 2 * below, "F0" },
    { before, "F0 F1" },
    { below, "I1 W F1" },
    { 1, below > 0 and "F0+B1 F1+B0" or "F0 B1 F1+B0" },   -- at the tip there is nothing to hide yet
    { M - 2 * P + r, "F0+B1 F1+B0" },
    { below, "B1 F1+B0" },
    { before // 2, "B1 B0" }, { before % 2, "B1 I0" }, { before // 2, "I1 I0" },
    { below, "W I0" },
    { before, "W" },
  }, function(x, k) return x == 0 and r or 2 * P - 1 - r, k end)
end

local sequence = {}
for r = 0, P - 1 do sequence[r + 1] = order(r) end

return schedule { workers = P, stages = 2 * P, batches = M, sequence = sequence, overlap = p.overlap, tensor = p.tensor }
