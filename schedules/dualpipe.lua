-- DualPipe: two pipelines through the same ranks, one from each end, each with a copy of the weights.
-- Where they meet, the F of one and the B of the other overlap; weight gradients fill idle time.
-- DeepSeek-AI 2024, "DeepSeek-V3 Technical Report", section 3.2.1; the eight steps are from
-- github.com/deepseek-ai/DualPipe. Even microbatches enter at rank 0, odd ones at the last rank. overlap is the share
-- of an F that its paired B hides: 0 by default, since a device has one compute lane.
--
-- pianola show schedules/dualpipe.lua
--| time    0       2       4       6       8       10      12      14      16      18      20      22      24
--| rank 0  0F0 0F2 0F4 3F1 3I1 3W1 3F3 0F6--+3B3--  .  3F5--+0B0-- 3B5----  .  3F7--+0B2-- 3B7---- 0I4 0W4 0I6 0W6
--| rank 1   .  1F0 2F1 1F2 2F3 1F4 2B1---- 2F5--+1B0-- 1F6--+2B3-- 2F7--+1B2-- 2B5---- 1B4----  .  2I7 1I6 2W7 1W6
--| rank 2   .  1F1 2F0 1F3 2F2 1F5 2B0---- 2F4--+1B1-- 1F7--+2B2-- 2F6--+1B3-- 2B4---- 1B5----  .  2I6 1I7 2W6 1W7
--| rank 3  0F1 0F3 0F5 3F0 3I0 3W0 3F2 0F7--+3B2--  .  3F4--+0B1-- 3B4----  .  3F6--+0B3-- 3B6---- 0I5 0W5 0I7 0W7
local p = params { workers = 4, batches = 8, overlap = 0.0 }
local P, M = p.workers, p.batches
if P % 2 ~= 0 then error("DualPipe pairs ranks from both ends: workers = " .. P .. " must be even") end
if M % 2 ~= 0 then error("DualPipe sends half of the microbatches each way: batches = " .. M .. " must be even") end
if M < 2 * P then error("DualPipe fills both pipelines: batches = " .. M .. " must be at least " .. 2 * P) end

local function order(r)
  local near = math.min(r, P - 1 - r)                      -- distance to the nearer end
  local before, below = near + 1, P // 2 - near - 1        -- ranks from there; from here to the middle
  return unroll({
    { 2 * below, "F0" },                                   -- chunk 0 comes from the nearer end, 1 from the other
    { before, "F0 F1" },
    { below, "I1 W F1" },
    { 1, below > 0 and "F0+B1 F1+B0" or "F0 B1 F1+B0" },   -- in the middle there is nothing to hide yet
    { M // 2 - P + near, "F0+B1 F1+B0" },
    { below, "B1 F1+B0" },
    { before // 2, "B1 B0" }, { before % 2, "B1 I0" }, { before // 2, "I1 I0" },
    { below, "W I0" },
    { before, "W" },
  }, function(x, k)
    local from_0 = (x == 0) == (r < P // 2)
    return from_0 and r or P - 1 - r, from_0 and 2 * k or 2 * k + 1
  end)
end

local sequence = {}
for r = 0, P - 1 do sequence[r + 1] = order(r) end

-- (P / 2 - 1)(F&B + B - 3 W) idle per rank, as the repository above states it, where F&B = F + B takes 3.
return schedule {
  workers = P, stages = P, batches = M, sequence = sequence, overlap = p.overlap,
  bubble = p.overlap == 0 and (P - 2) / (3 * M + P - 2) or nil,
}
