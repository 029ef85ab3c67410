while true do pcall(string.find, ("a"):rep(60000), ".-.-.-b") end
