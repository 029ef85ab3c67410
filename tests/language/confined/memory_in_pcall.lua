local kept = {}
while true do pcall(function() while true do kept[#kept + 1] = {} end end) end
