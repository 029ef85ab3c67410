local p = params { workers = 1 }
while true do pcall(function() return p.worker end) end
