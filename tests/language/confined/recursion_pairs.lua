local t = setmetatable({}, { __pairs = function(t) return pairs(t) end })
for k in pairs(t) do end
