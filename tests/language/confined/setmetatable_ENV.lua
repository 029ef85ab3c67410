setmetatable(_ENV, { __index = function() end })
