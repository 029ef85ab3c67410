local t = {}
for i = 1, 3000000 do t[i] = i end
while true do for k in pairs(t) do break end end
