-- ZB-V whose ranks are teams: no bubble between teams, tensor parallelism inside them.
-- Team k of P has the stages k (chunk 1 of the letters below: F, I, W) and 2 P - 1 - k (chunk 2: f, i, w), in the order of
-- zbv.lua. A W exchanges nothing, so all of its time is computation.
-- Qi 2023, "Zero Bubble Pipeline Parallelism", section 6; Narayanan 2021, "Efficient Large-Scale Language Model Training on
-- GPU Clusters Using Megatron-LM", section 2.3, for teams inside a node and pipelines between nodes.
--
-- pianola show schedules/tp_zbv.lua
--| time    0         5         10        15        20        25        30        35        40        45        50
--| rank 0  F0F1F2F3F4F5F6F0I0W0F1I1W1F2I2W2F3I3W3F7I0W0F4I4W4I1W1F5I5W5I2W2F6I6W6I3W3F7I7W7I4W4I5W5I6W6I7W7. . .
--| rank 1  F0F1F2F3F4F5F6F0I0W0F1I1W1F2I2W2F3I3W3F7I0W0F4I4W4I1W1F5I5W5I2W2F6I6W6I3W3F7I7W7I4W4I5W5I6W6I7W7. . .
--| rank 2  . F0F1F2F3F4F0F5F1I0W0F2I1W1F3I2W2F6I0W0F4I3W3F7I1W1F5I4W4I2W2F6I5W5I3W3F7I6W6I4I7I5W4I6W5I7W6W7W7. .
--| rank 3  . F0F1F2F3F4F0F5F1I0W0F2I1W1F3I2W2F6I0W0F4I3W3F7I1W1F5I4W4I2W2F6I5W5I3W3F7I6W6I4I7I5W4I6W5I7W6W7W7. .
--| rank 4  . . F0F1F2F0F3F1F4F2I0W0F3I1W1F5I0W0F4I2W2F6I1W1F5I3W3F7I2W2F6I4W4I3W3F7I5W5I4I6I5I7I6W4I7W5W6W6W7W7.
--| rank 5  . . F0F1F2F0F3F1F4F2I0W0F3I1W1F5I0W0F4I2W2F6I1W1F5I3W3F7I2W2F6I4W4I3W3F7I5W5I4I6I5I7I6W4I7W5W6W6W7W7.
--| rank 6  . . . F0F0F1F1F2F2F3F3I0W0F4I0W0F4I1W1F5I1W1F5I2W2F6I2W2F6I3W3F7I3W3F7I4W4I4I5I5I6I6I7I7W4W5W5W6W6W7W7
--| rank 7  . . . F0F0F1F1F2F2F3F3I0W0F4I0W0F4I1W1F5I1W1F5I2W2F6I2W2F6I3W3F7I3W3F7I4W4I4I5I5I6I6I7I7W4W5W5W6W6W7W7
local p = params { workers = 8, tensor = 2, batches = 8 }
if p.workers % p.tensor ~= 0 then error("tensor = " .. p.tensor .. " must divide workers = " .. p.workers) end
local P, M = p.workers // p.tensor, p.batches
local team, place = {}, {}
for s = 0, 2 * P - 1 do
  team[s] = {}
  for i = 1, p.tensor do team[s][i] = math.min(s, 2 * P - 1 - s) * p.tensor + i - 1 end
  place[s] = { F = {}, I = {}, W = {} }
end

-- The order of team k: `add(n, "f", "i")` adds n rounds of the next f and the next i, while there are any.
local function order(k)
  local last, done = 0, {}
  local function add(n, ...)
    for _ = 1, n do
      for _, kind in ipairs { ... } do
        local b = done[kind] or 0
        local d = kind:upper()
        if b < M and (d ~= "W" or b < (done[kind == "W" and "I" or "i"] or 0)) then
          last, done[kind] = last + 1, b + 1
          place[kind == d and k or 2 * P - 1 - k][d][b] = last
        end
      end
    end
  end
  add(2 * (P - k) - 1, "F")
  add(k, "f", "F")
  add(P - k, "f", "i", "w")
  add(math.max(0, M - (2 * P - 1 - k)), "F", "I", "W", "f", "i", "w")
  add(P - 1 - k, "I", "W", "f", "i", "w")
  add(k, "I", "i")
  add(P - k, "I", "W")
  add(M, "w", "W")
end
for k = 0, P - 1 do order(k) end

return schedule {
  workers = p.workers, stages = 2 * P, batches = M,
  w = function(s, b, d) return team[s], team[s] end,
  split_backward = true,
  n = function(s, b, d) return place[s][d == "R" and "I" or d][b] end, order = "strict",
}
