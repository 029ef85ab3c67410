setmetatable("", { __index = function() end })
