-- Times of a chunk: F, I and W to compute, and AR for all exchanges of its team in one direction, in `blocks`
-- all-reduces. An all-reduce of t members, by ring or tree, whichever is faster, takes 2 ceil(log2 t) latencies. Links
-- between teams are free.
local p = params { stages = 8, blocks = 2, tensor = 2, F = 4.0, I = 4.0, W = 4.0, AR = 1.0 }
local steps = 0
while 1 << steps < p.tensor do steps = steps + 1 end
return cluster {
  stages = p.stages * p.tensor,
  cost = function(s, op)
    if op == "B" then return p.I + p.W end
    return ({ F = p.F, I = p.I, W = p.W })[op] or 0
  end,
  link = function(src, dst)
    return src // p.tensor == dst // p.tensor and p.AR / p.blocks / 2 / steps or 0, math.huge
  end,
}
