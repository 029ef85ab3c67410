local function r(n) if n > 0 then return (r(n - 1)) end end
while true do coroutine.wrap(function() r(150000) end)() end
