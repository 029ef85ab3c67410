for x in ("a"):rep(30000):gmatch("(.-)(.-)(.-)b") do end
