local s = ("x"):rep(50000000)
while true do utf8.len(s) end
