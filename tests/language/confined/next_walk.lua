local t = {}
for i = 1, 100000 do t[i] = i end
local k
repeat k = next(t, k) until not k
