-- V-Cap: two chunks per rank in a V, under any cap on live activations; as fast as ZB-V with a cap of 2 P.
-- Qi 2024, "Pipeline Parallelism with Controllable Memory": the tradeoff between memory and bubble, here as one rule.
-- Room for one activation is reserved for the second chunk, which prevents deadlock: at most cap - 1 microbatches of
-- the first chunk are in flight. With a cap of at least 4 P / 3, forwards come first; with less, the input gradients
-- whose weight gradients make room soonest. On 4 ranks no order is faster with a cap of 5 to 8; with few activations on
-- more ranks, V-Half is.
--
-- pianola show schedules/v_cap.lua
--| time    0         5         10        15        20        25        30        35        40        45        50
--| rank 0  F0F1F2F3F4F5. F0I0W0. . F1I1W1I0W0F6F2I2W2F3I1I3W1F4I4W3F7I2W2F5I3I5W3W4W5F6I4I6W4F7I7I5W5W6W7I6W6I7W7.
--| rank 1  . F0F1F2F3F4F0F5. I0W0F1. . I0I1W0F2W1F3I1I2W1F4I3W2F6I2I4W2F5I3W3F7I5W3F6I4W4W4F7I6I5I7W5W5I6W6I7W6W7W7
--| rank 2  . . F0F1F2F0F3F1F4. I0W0F2I0W0F3I1W1F5I1W1F4I2W2. I2I3F5W2F6I3I4W3F6W3F7I4I5W4F7W4I5I6W5I7I6W5I7W6W6W7W7
--| rank 3  . . . F0F0F1F1F2F2F3. I0I0W0F3W0F4I1I1W1F4W1F5I2I2W2F5I3I3W2F6W3F6I4I4W3F7W4F7I5I5W4W5I6I6I7I7W5W6W6W7W7
local p = params { workers = 4, batches = 8, cap = 7 }
local P, M = p.workers, p.batches
if p.cap < 2 then error("cap = " .. p.cap .. " must be at least 2: a microbatch has two chunks on each rank") end

local function rank(s) return s < P and s or 2 * P - 1 - s end

-- Priorities of the jobs that are ready on a rank: f is a forward of the second chunk, F of the first, and so on.
local order = p.cap < 4 * P / 3 and { i = 1, f = 2, F = 3, I = 4 } or { f = 1, F = 2, I = 3, i = 4 }

-- The pattern that `pianola optimal` finds for 4 ranks and a cap of 5; no rule of this kind produces it.
local function five()
  local function of(s)
    return function(x, k) return x == 0 and s or 7 - s, k end
  end
  return {
    unroll({ { 3, "F0" }, { 2, "F1 I1" }, { 1, "W F0" },
      { M - 4, "W F1 I1 W F0 I0" },
      { 2, "W F1 I1 I0 W" }, { 1, "I0" }, { 2, "W" }, { 1, "I0 W" } }, of(0)),
    unroll({ { 3, "F0" }, { 2, "F1" }, { 1, "I1" },
      { M - 3, "W I1 W F0 F1 I0" },
      { 1, "W I1 W F1 I0 W I1 I0" }, { 2, "W" }, { 1, "I0 W" } }, of(1)),
    unroll({ { 3, "F0" }, { 2, "F1" }, { 2, "I1 W" }, { 1, "F1 I0" },
      { M - 3, "F0 W I1 F1 I0 W" },
      { 1, "I0 W I1" }, { 2, "W" }, { 1, "I0 W" } }, of(2)),
    unroll({ { 2, "F0 F1" }, { 1, "F0 I1 W F1 I0 I1 W F0 W" },
      { M - 4, "F1 I0 I1 W W F0" },
      { 1, "F1 I0 I1 I0" }, { 3, "W" }, { 1, "I1 I0" }, { 2, "W" } }, of(3)),
  }
end

if P == 4 and p.cap == 5 and M >= 4 then
  return schedule { workers = P, stages = 2 * P, batches = M, cap = p.cap, sequence = five() }
end

return schedule {
  workers = P, stages = 2 * P, batches = M,
  w = function(s, b, d) return rank(s), rank(s) end,
  split_backward = true,
  n = function(s, b, d) return d == "R" and 5 or d == "W" and 6 or order[s < P and d or d:lower()] end,
  pred = function(s, b, d)
    if d == "W" then return { { s, b, "I" } } end
    if d == "I" then return { { s, b, "F" }, s < 2 * P - 1 and { s + 1, b, "I" } or nil } end
    if s > 0 then return { { s - 1, b, "F" } } end
    return b >= p.cap - 1 and { { 0, b - p.cap + 1, "W" } } or {}
  end,
  cap = p.cap,
}
