local s = ("x"):rep(10000)
while true do string.format("%q %s", s, s) end
