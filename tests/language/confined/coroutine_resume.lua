while true do coroutine.resume(coroutine.create(function() while true do pcall(function() while true do end end) end end)) end
