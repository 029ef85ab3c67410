local s = ("9"):rep(50000000)
while true do tonumber(s) end
