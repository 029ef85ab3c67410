-- args: -D group=3
local p = params { workers = 8, group = 4 }
if p.workers % p.group ~= 0 then
  error("group = " .. p.group .. " must divide workers = " .. p.workers)
end
return schedule {
  workers = 4, stages = 4, batches = 4,
  w = function(s, b, d) return s, s end,
}
