local t = {}
setmetatable(t, { __call = function(t) return t() + 1 end })
t()
