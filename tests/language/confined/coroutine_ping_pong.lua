local ping = coroutine.wrap(function() while true do coroutine.yield() end end)
while true do ping() end
