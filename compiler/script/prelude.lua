-- Predefined for scripts in addition to Lua's own functions. Plain ASCII: it becomes a C string in the binary.

-- The papers' orders, for use as a schedule's n. Smaller runs first; ties go by microbatch, then stage, then F < R < I
-- < B < W, so each order states only what it adds to that. None has a place for updates, which then run at once.
local orders = {}

-- All forwards, then all backwards (GPipe: Huang 2019, section 2.3).
function orders.forward_first(s, b, d)
  if d ~= "U" then return d == "F" and 0 or 1 end
end

-- A backward as soon as one is ready (PipeDream's 1F1B: Narayanan 2019, section 3.2). Needs a cap to save memory. A
-- recompute runs only when nothing else can, or it would come right after its forward.
function orders.backward_first(s, b, d)
  if d ~= "U" then return d == "F" and 1 or d == "R" and 2 or 0 end
end

-- The oldest microbatch first (Rahimi 2025, "depth first"); within it recomputes come last, the last stage's first.
function orders.oldest_batch_first(s, b, d)
  if d ~= "U" then return d == "R" and b + 1 / (s + 2) or b end
end

-- A whole stage before the next (Lamy-Poirier 2022, "breadth first").
function orders.oldest_stage_first(s, b, d)
  if d ~= "U" then return s end
end

-- Expands a rank's sequence from repeat counts and patterns, such as { { 2, "F0" }, { 3, "F0+B1 W" } }. The k-th F of
-- chunk x, its k-th R, its k-th W and its k-th backward, B or I, belong to s, b = job(x, k), with k from 0. A W without
-- a chunk belongs to the rank's oldest I that has no W yet.
function orders.unroll(patterns, job)
  local list, count, inputs, weights = {}, {}, {}, 0
  local function name(d, way, x)
    if d == "W" and not x then
      weights = weights + 1
      return inputs[weights]
    end
    local k = count[way] or 0
    count[way] = k + 1
    local s, b = job(x, k)
    if d == "I" then inputs[#inputs + 1] = s .. "W" .. b end
    return s .. d .. b
  end
  for _, pattern in ipairs(patterns) do
    local parts, joints = {}, {} -- "F0+B1 W" is F0, B1 and W, with a joint after the first
    for d, x, joint in pattern[2]:gmatch("(%u)(%d*)(%+?)") do
      parts[#parts + 1] = { d, (d == "I" and "B" or d) .. x, tonumber(x) }
      joints[#parts] = joint == "+"
    end
    for _ = 1, pattern[1] do
      local before
      for i, part in ipairs(parts) do
        local entry = name(part[1], part[2], part[3])
        if before then entry = before .. "+" .. entry end
        before = joints[i] and entry or nil
        if not before then list[#list + 1] = entry end
      end
    end
  end
  return list
end

-- One forward, one backward: the position of the k-th forward (d == "F") or backward of a rank that runs `warmup`
-- forwards, then a backward and a forward in turn (Narayanan 2021, section 2.2). Not an n, but a helper for one.
function orders.one_forward_one_backward(k, d, warmup)
  if d == "U" then return nil end
  if d ~= "F" then return warmup + 2 * k end
  return k < warmup and k or 2 * k - warmup + 1
end

-- Lua's own sort seeds itself from the clock and is not stable; this merge sort is the same on every machine.
local function merge(from, to, low, middle, high, before)
  local i, j = low, middle
  for k = low, high - 1 do
    if i < middle and (j >= high or not before(from[j], from[i])) then
      to[k], i = from[i], i + 1
    else
      to[k], j = from[j], j + 1
    end
  end
end

local function less(a, b) return a < b end

local min = math.min
local function sort(list, before)
  before = before or less
  local n, from, to = #list, list, {}
  local width = 1
  while width < n do
    for low = 1, n, 2 * width do
      merge(from, to, low, min(low + width, n + 1), min(low + 2 * width, n + 1), before)
    end
    from, to, width = to, from, 2 * width
  end
  if from ~= list then
    for i = 1, n do list[i] = from[i] end
  end
end

-- Lua runs xpcall's handler where the error was raised; in the hook that counts instructions, it would run uncounted.
-- Here it runs afterwards.
local pcall = pcall
local function handle(handler, ok, ...)
  if ok then return true, ... end
  return false, handler(...)
end
local function xpcall(f, handler, ...) return handle(handler, pcall(f, ...)) end

return orders, sort, xpcall
