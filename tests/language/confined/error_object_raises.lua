error(setmetatable({}, { __tostring = function(e) error(e) end }))
