while true do pcall(error, setmetatable({}, { __index = error })) end
