-- An iterator that has come to its end, or to an error, searches no more.
local done, broken = ("a"):rep(10000):gmatch("b"), ("a"):rep(100):gmatch(".-.-[")
while true do
  done()
  pcall(broken)
end
