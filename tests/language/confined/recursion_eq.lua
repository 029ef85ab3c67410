local meta = { __eq = function(a, b) return a == b end }
return setmetatable({}, meta) == setmetatable({}, meta)
