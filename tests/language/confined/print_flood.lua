while true do print(("x"):rep(100000)) end
