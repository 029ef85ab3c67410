-- Any order of a pipeline's jobs, with a cap: straight, looped, or in a V.
local p = params { workers = 4, batches = 8, chunks = 1, v = false, split = false, caps = { 4 } }
local P = p.workers
local function rank(s)
  local place = s % P
  return p.v and s // P % 2 == 1 and P - 1 - place or place
end
return schedule {
  workers = P, stages = P * p.chunks, batches = p.batches, split_backward = p.split,
  w = function(s, b, d) return rank(s), rank(s) end,
  n = function(s, b, d) return d == "W" and 1 or 0 end,
  cap = function(worker) return p.caps[worker + 1] or p.caps[1] end,
}
