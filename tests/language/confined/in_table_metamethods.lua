local function forever() while true do end end
local trap = setmetatable({}, { __index = forever, __len = forever, __pairs = forever, __eq = forever })
return schedule(trap)
