local function f() f() end
while true do pcall(f) end
