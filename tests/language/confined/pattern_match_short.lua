local s = ("a"):rep(100)
while true do s:match(".-.-b") end
