local kept = {}
for i = 1, math.huge do kept[i] = ("x"):rep(1000) .. i end
