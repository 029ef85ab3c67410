local function deeper(f) return function() while true do pcall(f) end end end
local f = function() while true do end end
for i = 1, 100 do f = deeper(f) end
f()
