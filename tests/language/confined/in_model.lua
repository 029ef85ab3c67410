-- args: --model FILE
local layers = {}
while true do pcall(function() while true do layers[#layers + 1] = linear { width = 4 } end end) end
