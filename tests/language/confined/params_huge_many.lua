for i = 1, math.huge do params { ["x" .. i] = ("x"):rep(1000000) } end
