local held = {}
while true do
  pcall(function() for i = 1, 1e7 do held[#held + 1] = ("item " .. i):rep(50) end end)
end
