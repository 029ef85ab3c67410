-- A random cluster for random.lua: links differ by direction, have latency alone or also a bandwidth, and range from
-- free to slower than the work. Their scale suits a model's costs in FLOP: a rank computes one FLOP per second.
local seed = params { seed = 1 }.seed
local function draw(n, what, src, dst)
  local hash = (seed ~ 0xcbf29ce484222325) * 0x100000001b3
  for _, x in ipairs { what:byte(1), src or 0, dst or 0 } do hash = (hash ~ x) * 0x100000001b3 end
  return ((hash ~ hash >> 29) * 0x2545F4914F6CDD1D >> 33) % n
end

local p = params {
  links = ({ "free", "latency", "bandwidth" })[1 + draw(3, "links")],
  scale = ({ 1, 100, 1000 })[1 + draw(3, "scale")],
  host = draw(2, "host") == 0, -- to host memory, too
}

return cluster {
  flops = 1,
  link = p.links ~= "free" and function(src, dst)
    local narrow = p.links == "bandwidth" and draw(4, "narrow", src, dst) > 0
    return p.scale * draw(9, "time", src, dst) / 4, narrow and (1 << draw(6, "bytes", src, dst)) / p.scale or math.huge
  end or nil,
  host_link = p.host and function(r)
    return p.scale * draw(9, "delay", r) / 4, (1 << draw(6, "width", r)) / p.scale
  end or nil,
}
