local kept = {}
while true do local x = kept kept = function() return x end end
