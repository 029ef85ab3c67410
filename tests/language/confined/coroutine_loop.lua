while true do coroutine.wrap(function() while true do end end)() end
