getmetatable("").__index = function() end
