-- ZB-V: two chunks per rank in a V, so that loss and first stage share a rank; no bubble in 1F1B's memory.
-- Qi 2023, "Zero Bubble Pipeline Parallelism", section 6: rank r has the stages r (chunk 1 of the letters below: F, I, W)
-- and 2 P - 1 - r (chunk 2: f, i, w). A rank's span is its work when F = I = W, and it holds 2 P activations of half a
-- stage, as much as P whole ones.
--
-- pianola show schedules/zbv.lua
--| time    0         5         10        15        20        25        30        35        40        45        50
--| rank 0  F0F1F2F3F4F5F6F0I0W0F1I1W1F2I2W2F3I3W3F7I0W0F4I4W4I1W1F5I5W5I2W2F6I6W6I3W3F7I7W7I4W4I5W5I6W6I7W7. . .
--| rank 1  . F0F1F2F3F4F0F5F1I0W0F2I1W1F3I2W2F6I0W0F4I3W3F7I1W1F5I4W4I2W2F6I5W5I3W3F7I6W6I4I7I5W4I6W5I7W6W7W7. .
--| rank 2  . . F0F1F2F0F3F1F4F2I0W0F3I1W1F5I0W0F4I2W2F6I1W1F5I3W3F7I2W2F6I4W4I3W3F7I5W5I4I6I5I7I6W4I7W5W6W6W7W7.
--| rank 3  . . . F0F0F1F1F2F2F3F3I0W0F4I0W0F4I1W1F5I1W1F5I2W2F6I2W2F6I3W3F7I3W3F7I4W4I4I5I5I6I6I7I7W4W5W5W6W6W7W7
local p = params { workers = 4, batches = 8 }
local P, M = p.workers, p.batches

-- The jobs of rank r in their order: `add(n, "f", "i")` adds n rounds of the next f and the next i, while there are any.
local function jobs(r)
  local list, done = {}, {}
  local function add(n, ...)
    for _ = 1, n do
      for _, kind in ipairs { ... } do
        local b = done[kind] or 0
        local d = kind:upper()
        if b < M and (d ~= "W" or b < (done[kind == "W" and "I" or "i"] or 0)) then
          list[#list + 1] = (kind == d and r or 2 * P - 1 - r) .. d .. b
          done[kind] = b + 1
        end
      end
    end
  end
  add(2 * (P - r) - 1, "F")
  add(r, "f", "F")
  add(P - r, "f", "i", "w")
  add(math.max(0, M - (2 * P - 1 - r)), "F", "I", "W", "f", "i", "w")
  add(P - 1 - r, "I", "W", "f", "i", "w")
  add(r, "I", "i")
  add(P - r, "I", "W")
  add(M, "w", "W")
  return list
end

local sequence = {}
for r = 0, P - 1 do sequence[r + 1] = jobs(r) end

return schedule {
  workers = P, stages = 2 * P, batches = M, sequence = sequence,
  bubble = M >= 2 * P - 2 and (P - 1) / (6 * M + P - 1) or nil,
}
