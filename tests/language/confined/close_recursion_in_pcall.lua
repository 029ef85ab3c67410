local function r(n) if n > 0 then local t <close> = setmetatable({}, {__close = function() end}) return (r(n - 1)) end error("x") end
while true do pcall(r, 30) end
