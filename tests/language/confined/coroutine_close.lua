local function forever() while true do end end
while true do
  local c = coroutine.create(function() local guard <close> = setmetatable({}, { __close = forever }) coroutine.yield() end)
  coroutine.resume(c)
  coroutine.close(c)
end
