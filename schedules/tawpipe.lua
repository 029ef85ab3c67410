-- TawPipe: like WeiPipe, but weights cross between groups of ranks, such as nodes, only once per group.
-- A stage's home shares it with its own group, all at once. In each other group, the first rank fetches it and passes it on.
-- Each microbatch goes forward and then backward through all stages, so one weight arrives in each turn.
-- Wu & Chen 2025, "TawPipe: Topology-Aware Weight Pipeline Parallelism for Accelerating Long-Context Large Models
-- Training", arXiv:2511.09741, and tawpipe.py of github.com/wuhouming/TawPipe, whose weight2rank is `home` here. In
-- that code, the rank with the home's place in its own group fetches the stage, and each group starts a turn after the
-- one before it.
--
-- pianola show schedules/tawpipe.lua
--| time    0         5         10        15        20        25        30        35        40        45
--| rank 0  F0F0F0F0F0F0F0F0B0- B0- B0- B0- B0- B0- B0- B0- F8F8F8F8F8F8F8F8B8- B8- B8- B8- B8- B8- B8- B8-
--| rank 1  F1F1F1F1F1F1F1F1B1- B1- B1- B1- B1- B1- B1- B1- F9F9F9F9F9F9F9F9B9- B9- B9- B9- B9- B9- B9- B9-
--| rank 2  F2F2F2F2F2F2F2F2B2- B2- B2- B2- B2- B2- B2- B2- F F F F F F F F B10 B10 B10 B10 B10 B10 B10 B10
--| rank 3  F3F3F3F3F3F3F3F3B3- B3- B3- B3- B3- B3- B3- B3- F F F F F F F F B11 B11 B11 B11 B11 B11 B11 B11
--| rank 4  F4F4F4F4F4F4F4F4B4- B4- B4- B4- B4- B4- B4- B4- F F F F F F F F B12 B12 B12 B12 B12 B12 B12 B12
--| rank 5  F5F5F5F5F5F5F5F5B5- B5- B5- B5- B5- B5- B5- B5- F F F F F F F F B13 B13 B13 B13 B13 B13 B13 B13
--| rank 6  F6F6F6F6F6F6F6F6B6- B6- B6- B6- B6- B6- B6- B6- F F F F F F F F B14 B14 B14 B14 B14 B14 B14 B14
--| rank 7  F7F7F7F7F7F7F7F7B7- B7- B7- B7- B7- B7- B7- B7- F F F F F F F F B15 B15 B15 B15 B15 B15 B15 B15
local p = params { workers = 8, stages = 8, batches = 16, group = 4, slots = 2 }
if p.workers % p.group ~= 0 then error("group = " .. p.group .. " must divide workers = " .. p.workers) end
local groups = p.workers // p.group
local function home(s) return s % groups * p.group + s // groups % p.group end

return schedule {
  workers = p.workers, stages = p.stages, batches = p.batches,
  w = function(s, b, d) return home(s), b % p.workers end,
  n = oldest_batch_first,
  source = function(s, b, d)
    local r, h = b % p.workers, home(s)
    if r // p.group == h // p.group then return nil end
    local first = r - r % p.group
    return r == first and h or first
  end,
  weight_slots = p.slots,
  tune = { stages = { 8, 16 }, group = "divisors" },
}
