local function forever() while true do end end
params(setmetatable({}, { __index = forever, __len = forever, __pairs = forever }))
while true do pcall(forever) end
