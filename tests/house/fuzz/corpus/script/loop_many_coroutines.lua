while true do coroutine.wrap(function() for i = 1, 200 do end end)() end
