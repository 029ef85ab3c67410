-- DualPipeV: DualPipe folded in half, two stages per rank in a V, one copy of the weights.
-- A microbatch on its way down meets one on its way back, and their F and B overlap.
-- DeepSeek-AI 2025, github.com/deepseek-ai/DualPipe, "DualPipeV"; the "cut-in-half" of Qi 2025, "DualPipe could be
-- better without the Dual". Eight steps per rank; overlap is the share of an F that its paired B hides: 0 by default,
-- since a device has one compute lane.
--
-- pianola show schedules/dualpipev.lua
--| time    0         5         10        15        20        25        30        35        40        45        50
--| rank 0  F0F1F2F3F4F5F6F0I0W0F1I1W1F2I2W2F3F7+B3 . . . F4+B0 B4- . F5+B1 B5- . F6+B2 B6- . F7+B3 B7- I4W4I5W5I6W6I7W7
--| rank 1  . F0F1F2F3F4F0F5F1I0W0F2I1W1F3F6+B2 . . F4+B0 F7+B3 F5+B1 B4- . F6+B2 B5- . F7+B3 B6- B4- . I7I5W7I6W5I7W6W7
--| rank 2  . . F0F1F2F0F3F1F4F2I0W0F3F5+B1 . F4+B0 F6+B2 F5+B1 F7+B3 F6+B2 B4- . F7+B3 B5- B4- . B6- I5. I7I6W5I7W7W6W7
--| rank 3  . . . F0F0F1F1F2F2F3F3F4B0- F4+B0 F5+B1 F5+B1 F6+B2 F6+B2 F7+B3 F7+B3 B4- B4- . B5- B5- . I6I6. I7I7W6W6W7W7
local p = params { workers = 4, batches = 8, overlap = 0.0 }
local P, M = p.workers, p.batches
if M < 2 * P then error("DualPipeV fills a V of 2 P stages: batches = " .. M .. " must be at least " .. 2 * P) end

local function order(r)
  local before, below = r + 1, P - r - 1                   -- ranks up to this one; after it, to the V's tip
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

-- (P - 1)(F&B + B - 3 W) idle per rank, as the repository above states it for 2 P stages, where F&B = F + B takes 3.
return schedule {
  workers = P, stages = 2 * P, batches = M, sequence = sequence, overlap = p.overlap,
  bubble = p.overlap == 0 and (P - 1) / (3 * M + P - 1) or nil,
}
