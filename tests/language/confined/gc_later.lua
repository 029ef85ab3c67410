local meta = {}
local t = setmetatable({}, meta)
meta.__gc = function() while true do end end
t = nil
while true do local garbage = {} end
