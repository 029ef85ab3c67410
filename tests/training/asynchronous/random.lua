-- A random pipeline whose updates are jobs. Stages run on one rank or on several in turn, with weights at home or on a
-- server, and with one update or several. The versions that jobs read are drawn per stage or per job. Every draw is a
-- function of the seed and of the thing it is for.
local seed = params { seed = 1 }.seed

-- Returns 0 .. n-1 for the thing `what` of job or cell (s, b, d), from the upper bits of an FNV-1a hash.
local function draw(n, what, s, b, d)
  local hash = (seed ~ 0xcbf29ce484222325) * 0x100000001b3
  for i = 1, #what do hash = (hash ~ what:byte(i)) * 0x100000001b3 end
  for _, x in ipairs { s or 0, b or 0, d and d:byte() or 0 } do hash = (hash ~ x) * 0x100000001b3 end
  return ((hash ~ hash >> 29) * 0x2545F4914F6CDD1D >> 33) % n
end
local function one_of(list, what, ...) return list[draw(#list, what, ...) + 1] end

local p = params {
  workers = 1 + draw(5, "workers"), stages = 1 + draw(4, "stages"), batches = 12 * (1 + draw(3, "batches")),
  rule = one_of({ "forward", "latest", "input", "number", "stages", "jobs" }, "rule"),
  order = one_of({ "1f1b", "backward", "oldest", "few" }, "order"),
  split = draw(4, "split") == 0, recompute = draw(4, "recompute") == 0,
}
local W, S, B = p.workers, p.stages, p.batches

-- Per stage, the ranks that run its microbatches in turn, each with the weights, or the one server of its weights.
local replicas = {}
local function on_server(s) return draw(4, "server", s) == 0 end
for s = 0, S - 1 do
  local ranks = {}
  for r = 0, W - 1 do table.insert(ranks, 1 + draw(r + 1, "place", s, r), r) end
  replicas[s] = table.move(ranks, 1, on_server(s) and 1 or 1 + draw(math.min(W, 3), "replicas", s), 1, {})
end

local function home(s, b) return replicas[s][1 + b % #replicas[s]] end
local function rank(s, b) return on_server(s) and draw(60, "rank", s, b % 4) % W or home(s, b) end

-- An update takes a microbatch from every replica, so that each contributes to its gradient.
local function update(s)
  local n = #replicas[s]
  return one_of({ n, 2 * n, n == 1 and "each" or n, 12 }, "update", s)
end

local function rule(what, ...) return one_of({ "forward", "latest", "input", 1, 2, 3, 0 }, what, ...) end
local function version(s, b, d)
  if p.rule == "number" then return draw(4, "updates back") end
  if p.rule == "stages" then return rule("stage's", s) end
  if p.rule == "jobs" then return rule("job's", s, b % 4, d) end
  return p.rule
end

local function n(s, b, d)
  if p.order == "1f1b" then return one_forward_one_backward(b, d, S - s) end
  if p.order == "backward" then return d == "F" and b or -1 end
  return p.order == "oldest" and b or draw(3, "n", s, b, d)
end

return schedule {
  workers = W, stages = S, batches = B,
  w = function(s, b, d) return home(s, b), rank(s, b) end,
  n = function(s, b, d) return d == "U" and -1 or n(s, b, d) end,
  split_backward = p.split, recompute = p.recompute and function(s, b) return draw(2, "again", s) == 0 end or nil,
  update = update, version = version,
}
