while true do pcall(string.rep, "x", 150000000) end
