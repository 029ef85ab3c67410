local endless = setmetatable({}, { __len = function() return math.maxinteger - 1 end })
pcall(table.insert, endless, 1, 0)
