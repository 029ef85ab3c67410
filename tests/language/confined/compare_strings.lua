local a, b = ("x"):rep(40000000), ("x"):rep(40000000)
while true do if a ~= b then return end end
