local forever <const> = function() while true do end end
while true do pcall(function() local guard <close> = setmetatable({}, { __close = forever }) forever() end) end
