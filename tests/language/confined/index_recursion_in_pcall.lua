local t = setmetatable({}, {__index = function(t, k) return t[k] end})
while true do pcall(function() return t.x end) end
