-- A random schedule that nobody would write by hand: placement, teams, homes, priorities, costs, caps, split backwards,
-- recompute, added orders, relays, host memory, gradients in pieces and rounds, updates within the step, and slices.
-- Every draw is a function of the seed and of the thing it is for, so with fewer workers, stages or batches the rest
-- stays the same. Each parameter is drawn too, unless -D gives it. Updates and slices are drawn only if `mixed` is set,
-- because such updates train differently from one rank.
local given = params { seed = 1, mixed = false }
local seed = given.seed

-- Returns 0 .. n-1 for the thing `what` of job or cell (s, b, d), from the upper bits of an FNV-1a hash.
local function draw(n, what, s, b, d)
  local hash = (seed ~ 0xcbf29ce484222325) * 0x100000001b3
  for i = 1, #what do hash = (hash ~ what:byte(i)) * 0x100000001b3 end
  for _, x in ipairs { s or 0, b or 0, d and d:byte() or 0 } do hash = (hash ~ x) * 0x100000001b3 end
  return ((hash ~ hash >> 29) * 0x2545F4914F6CDD1D >> 33) % n
end
local function one_of(list, what) return list[draw(#list, what) + 1] end

local p = params {
  workers = 1 + draw(5, "workers"), stages = 1 + draw(6, "stages"), batches = 1 + draw(8, "batches"),
  homes = one_of({ "stage", "job", "rank", "batch" }, "homes"), -- weights' homes; rank: where they are used
  split = one_of({ "no", "all", "some" }, "split"),
  recompute = one_of({ "no", "all", "some" }, "recompute"),
  strict = draw(3, "strict") == 0,
  capped = draw(3, "capped") == 0,
  priorities = one_of({ "few", "many", "oldest" }, "priorities"),
  costs = draw(2, "costs") == 0, -- false: the default
  extreme = draw(4, "extreme") == 0, -- own costs include 0, and costs negligible next to others
  slots = draw(3, "slots") > 0,  -- false: the default
  orders = draw(2, "orders") == 0,
  pairs = draw(2, "pairs") == 0, -- if strict: as a sequence, with jobs that overlap
  lists = draw(3, "lists") == 0, -- homes are lists of ranks and replicas of them, whatever `homes` says
  apart = draw(2, "apart") == 0, -- with lists or updates: all jobs of a microbatch on one rank, as in data parallelism
  zero = draw(3, "zero") == 0,
  rounds = draw(3, "rounds") == 0, -- gradient rounds: grad_slots
  buckets = draw(3, "buckets") == 0,
  offload = draw(3, "offload") == 0,
  state = draw(3, "state") == 0, -- optimizer state in host memory
  relays = draw(3, "relays") == 0,
  teams = draw(4, "teams") == 0, -- per stage, of 1, 2 or 4 ranks
  updates = given.mixed and draw(6, "updates") == 0, -- within the step: a home for each stage, and little else that moves weights
  slices = given.mixed and draw(6, "slices") == 0 and 2 or 1,
}
local W, S, B = p.workers, p.stages, p.batches
if p.updates then
  p.homes, p.lists, p.zero, p.rounds, p.state, p.relays, p.pairs = "stage", false, false, false, false, false, false
end
if p.slices > 1 then p.orders, p.strict = false, false end -- orders and priorities are drawn for whole microbatches

local function some(kind, what, s, b) return kind == "all" or kind == "some" and draw(2, what, s, b) == 0 end
local function splits(s, b) return some(p.split, "split", s, b) end
local function recomputes(s, b) return some(p.recompute, "recompute", s, b) end
local function backward(s, b) return splits(s, b) and "I" or "B" end
-- A stage's teams are adjacent ranks in the same permuted order, so each rank has the same place in all teams of the
-- stage.
local function size(s)
  local n = p.teams and ({ 1, 2, 2, 4 })[1 + draw(4, "team", s)] or 1
  return n <= W and n or 1
end
local function team(s, first) -- returns the rank if the team has only one
  local n, ranks = size(s), {}
  for i = 0, n - 1 do ranks[i + 1] = first + (i ~ draw(n, "turned", s)) end
  return n > 1 and ranks or first
end
local function rank(s, b, d) -- returns the team's first rank
  local n = size(s)
  if (p.lists or p.updates) and p.apart then return b % (W // n) * n end
  return draw(5 * 4 * 3, "rank", s, b, (d == "R" or d == "I") and "B" or d) % (W // n) * n
end

-- Returns the home of a team's stage: one team, or two teams, member by member.
local function home_of_team(s, first)
  local n = size(s)
  if p.updates or 2 * n > W or draw(3, "wide", s) > 0 then return team(s, first) end
  local a = first // (2 * n) * 2 * n
  if a + 2 * n > W then a = 0 end
  local list, other = {}, team(s, a + n)
  for i, r in ipairs(team(s, a)) do table.insert(list, r) table.insert(list, other[i]) end
  return list
end

-- Returns the homes of a stage: disjoint lists of equal length, or ranks. of: the home that each rank is in, if any.
local homes_of = {}
local function lists(s)
  if homes_of[s] then return homes_of[s] end
  local ranks, size, homes = {}, 1 + draw(W, "size", s), { of = {} }
  for r = 0, W - 1 do table.insert(ranks, 1 + draw(r + 1, "place", s, r), r) end
  for i = 1, 1 + draw(W // size, "replicas", s) do
    local list = table.move(ranks, (i - 1) * size + 1, i * size, 1, {})
    homes[i] = size > 1 and list or list[1]
    for _, r in ipairs(list) do homes.of[r] = homes[i] end
  end
  homes_of[s] = homes
  return homes
end

local function home(s, b, d)
  local n = size(s)
  if n > 1 then
    local block = p.homes == "stage" and draw(60, "home", s) or p.homes == "batch" and b
      or draw(60, "home", s, b, d == "R" and backward(s, b) or d)
    return home_of_team(s, p.homes == "rank" and rank(s, b, d) or block % (W // n) * n)
  end
  if p.lists then
    local homes, job = lists(s), d == "R" and backward(s, b) or d
    local own = draw(8, "own list", s, b, job) > 0 and homes.of[rank(s, b, d)]
    return own or homes[1 + draw(60, "list", s, b, job) % #homes]
  end
  if p.homes == "rank" then return rank(s, b, d) end
  if p.homes == "batch" then return b % W end
  return p.homes == "stage" and draw(60, "home", s) % W or draw(60, "home", s, b, d == "R" and backward(s, b) or d) % W
end

-- The default dependencies of a job.
local function needs(s, b, d)
  if d == "F" then return s > 0 and { { s - 1, b, "F" } } or {} end
  if d == "R" then return { { s, b, "F" } } end
  if d == "W" then return { { s, b, "I" } } end
  local list = { { s, b, recomputes(s, b) and "R" or "F" } }
  if s + 1 < S then list[2] = { s + 1, b, backward(s + 1, b) } end
  return list
end

-- Returns a time for a job after the times of everything it depends on, so jobs can run in the order of these times.
local times = {}
local function time(s, b, d)
  local key = (s * B + b) .. d
  if times[key] then return times[key] end
  local t = s == 0 and d == "F" and draw(60, "begin", 0, b) or 0
  for _, j in ipairs(needs(s, b, d)) do t = math.max(t, time(j[1], j[2], j[3])) end
  times[key] = t + 1 + draw(p.strict and p.pairs and 4 or 20, "time", s, b, d)
  return times[key]
end

-- Returns whether the edge is only an order: edges between jobs of one microbatch may carry a tensor.
local function is_order(from, s, b, d)
  if from[2] ~= b then return true end
  local function way(x) return (x == "B" or x == "I") and "back" or x end
  return from[1] ~= s and way(from[3]) ~= way(d)
end

local function pred(s, b, d)
  local list = needs(s, b, d)
  for i = 1, draw(3, "orders", s, b, d) == 0 and 2 or 0 do
    local from = { draw(60, "of stage" .. i, s, b, d) % S, draw(840, "of batch" .. i, s, b, d) % B }
    local back = backward(from[1], from[2])
    from[3] = ({ "F", back, back == "I" and "W" or "B" })[1 + draw(3, "of way" .. i, s, b, d)]
    if time(table.unpack(from)) < time(s, b, d) and is_order(from, s, b, d) then list[#list + 1] = from end
  end
  return list
end

local function update(s)
  local m = 1 + draw(B, "update", s)
  while B % m > 0 do m = m - 1 end
  return m
end

local rule = one_of({ "forward", "latest", "input", 0, 1, 2, "any" }, "version")
local function version(s, b, d)
  if rule ~= "any" then return rule end
  return ({ "forward", "latest", "input", 0, 1, 2 })[1 + draw(6, "version", s, b, d)]
end

local function n(s, b, d)
  if d == "U" then return draw(2, "at once", s, b) == 0 and not p.strict and draw(1000, "n", s, b) - 500 or nil end
  if p.strict then return time(s, b, d) end
  if p.capped or p.priorities == "oldest" then return b end -- with a cap, other orders deadlock
  return p.priorities == "few" and draw(3, "n", s, b, d) or draw(1000, "n", s, b, d) / 7 - 70
end

-- Returns the strict order as a sequence. Some neighbours with equal times overlap, since no job can lie between them.
local function sequence()
  local lists, pairs = {}, 0
  for r = 1, W do lists[r] = {} end
  for s = 0, S - 1 do
    for b = 0, B - 1 do
      for _, d in ipairs { "F", "R", "I", "B", "W" } do
        if d == "F" or d == "R" and recomputes(s, b) or (d == "B") ~= splits(s, b) and d ~= "R" then
          table.insert(lists[rank(s, b, d) + 1], { time = time(s, b, d), name = s .. d .. b })
        end
      end
    end
  end
  for _, list in ipairs(lists) do
    table.sort(list, function(x, y) return x.time < y.time end)
    local i = 1
    while list[i] do
      local with = list[i + 1]
      if with and with.time == list[i].time and draw(4, "pair" .. list[i].name) > 0 then
        list[i].name = list[i].name .. "+" .. table.remove(list, i + 1).name
        pairs = pairs + 1
      end
      list[i] = list[i].name
      i = i + 1
    end
  end
  return lists, pairs
end

local sequenced, pairs = nil, 0
if p.strict and p.pairs and not p.teams then sequenced, pairs = sequence() end

local function cost(s, b, d)
  if d == "U" then return 0.25 * draw(5, "cost", s, b, d) end
  if p.extreme then return ({ 0, 1e-20, 1, 1e9, 1e90 })[1 + draw(1 + draw(5, "kinds"), "cost", s, b, d)] end
  return 0.25 * (1 + draw(16, "cost", s, b, d))
end

-- Returns the ranks that have a stage's weights at some time: ranks with a job that reads them, and homes of the whole
-- stage.
local holders_of = {}
local function holders(s)
  if holders_of[s] then return holders_of[s] end
  local has, list = {}, {}
  for b = 0, B - 1 do
    for _, d in ipairs { "F", backward(s, b), "W" } do
      local h = home(s, b, d)
      if d ~= "W" then has[rank(s, b, d)] = true end
      if (d ~= "W" or splits(s, b)) and type(h) == "number" then has[h] = true end
    end
  end
  for r = 0, W - 1 do list[#list + 1] = has[r] and r or nil end
  holders_of[s] = list
  return list
end

local function source(s, b, d)
  if size(s) > 1 then return nil end
  local from = holders(s)[1 + draw(60, "source", s, b, d) % #holders(s)]
  return draw(4, "relayed", s, b, d) > 0 and from ~= rank(s, b, d) and from or nil
end

return schedule {
  workers = W, stages = S, batches = B, slices = p.slices > 1 and p.slices or nil,
  update = p.updates and update or nil,
  version = p.updates and version or nil,
  w = function(s, b, d) return home(s, b, d), team(s, rank(s, b, d)) end,
  n = not sequenced and n or nil,
  sequence = sequenced,
  overlap = pairs > 0 and draw(5, "overlap") / 4 or nil,
  order = p.strict and "strict" or "greedy",
  cap = p.capped and function(r) return S + (p.strict and B or 0) + draw(3, "cap", r) end or nil,
  split_backward = not sequenced and splits or nil,
  recompute = not sequenced and recomputes or nil,
  cost = p.costs and cost or nil,
  weight_slots = p.slots and function(r) return draw(4, "weight slots", r) end or nil,
  pred = p.orders and pred or nil,
  zero = p.zero and function(s) return draw(3, "zero", s) end or nil,
  grad_slots = p.rounds and not p.teams and function(r) return 1 + draw(3, "grad slots", r) end or nil, -- members need the same rounds
  bucket = p.buckets and function(s) return ({ 1, 5000, 20000, math.huge })[1 + draw(4, "bucket", s)] end or nil,
  offload = p.offload and function(s, b) return draw(3, "offload", s, b) > 0 end or nil,
  offload_optimizer = p.state and function(s) return draw(2, "state", s) == 0 end or nil,
  source = p.relays and source or nil,
}
