setmetatable(_G, { __index = function() end })
