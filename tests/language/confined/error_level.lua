local function deep(n) if n == 0 then while true do pcall(error, "x", 1e8) end end return (deep(n - 1)) end
coroutine.wrap(function() deep(150000) end)()
